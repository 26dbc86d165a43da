// Typesets formulas by KaTeX, which the site has beside it (katex/).
for (const found of document.querySelectorAll(".arithmatex")) {
  const isBlock = found.tagName === "DIV";
  const formula = found.textContent.trim().slice(2, -2); // without \( \) or \[ \]
  katex.render(formula, found, { displayMode: isBlock, throwOnError: false, strict: false });
}
