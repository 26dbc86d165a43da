// Checks a certificate and the file that was shared with it, inside this page: nothing is loaded, nothing is sent.
// It is written apart from `fairflows check`, which needs Python, and must come to the same verdicts.
"use strict";

// Numbers -----------------------------------------------------------------------------------------------------------

function sum(numbers) {
  let total = 0;
  for (let i = 0; i < numbers.length; i++) total += numbers[i];
  return total;
}

const largest = (numbers) => numbers.reduce((most, x) => Math.max(most, x), -Infinity);
const pairsOf = (items) => items.flatMap((a, i) => items.slice(i + 1).map((b) => [a, b]));

function halfToEven(x) {
  return Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x);
}

/** The standard normal distribution function, by its series of positive terms. */
function normalCdf(x) {
  if (Math.abs(x) > 9) return x > 0 ? 1 : 0;
  let term = x, total = x;
  for (let i = 3; Math.abs(term) > 1e-18 * Math.abs(total); i += 2) total += term *= (x * x) / i;
  return 0.5 + (total * Math.exp((-x * x) / 2)) / Math.sqrt(2 * Math.PI);
}

/** Probabilities of low … high, found from their ratios p(x + 1) / p(x), which start at the most probable number. */
function lawByRatios(low, high, mode, ratio) {
  const p = new Float64Array(high - low + 1);
  p[mode - low] = 1;
  for (let x = mode; x < high; x++) p[x + 1 - low] = p[x - low] * ratio(x);
  for (let x = mode; x > low; x--) p[x - 1 - low] = p[x - low] / ratio(x - 1);
  const total = sum(p);
  return p.map((each) => each / total);
}

/** Of `count` rows in a cell, the share x / left among the `left` of all n rows whose group is not known. */
function lawOfRest(n, count, left) {
  const mean = (left * count) / n, width = 1 + 9 * Math.sqrt(mean * (1 - count / n) + 1);
  const low = Math.max(0, count + left - n, Math.trunc(mean - width));
  const high = Math.min(count, left, Math.trunc(mean + width) + 1);
  const mode = Math.min(high, Math.max(low, Math.floor(((left + 1) * (count + 1)) / (n + 2))));
  const p = lawByRatios(low, high, mode, (x) => ((count - x) * (left - x)) / ((x + 1) * (n - count - left + x + 1)));
  let below = 0;
  return { at: Array.from(p, (_, i) => (low + i) / left), upTo: Array.from(p, (each) => (below += each)) };
}

/** E|X - Y| = ∫ F(1 - G) + G(1 - F) of two such shares. */
function meanDifference(one, other) {
  let i = 0, j = 0, F = 0, G = 0, last = 0, total = 0;
  while (i < one.at.length || j < other.at.length) {
    const takesOne = j === other.at.length || one.at[i] <= other.at[j];
    const here = takesOne ? one.at[i] : other.at[j];
    total += (here - last) * (F * (1 - G) + G * (1 - F));
    if (takesOne) F = one.upTo[i++];
    else G = other.upTo[j++];
    last = here;
  }
  return total;
}

// Bounds ------------------------------------------------------------------------------------------------------------

const shares = (row) => row.map((count) => count / (sum(row) || 1));

function distance(p, q) {
  let total = 0;
  for (let j = 0; j < p.length; j++) total += Math.abs(p[j] - q[j]);
  return total / 2;
}

/** Standard deviation and skewness of the distance between two groups whose shares in the cells vary around p and q. */
function spread(p, q, w, v) {
  const laws = [p, q], weights = [w, v];
  let r2 = 0, r4 = 0, A = 0, B = 0;
  const terms = p.map((_, j) => {
    const variance = w * p[j] * (1 - p[j]) + v * q[j] * (1 - q[j]);
    if (variance <= 0) return { s: 0, u: 0 };
    const d = (p[j] - q[j]) / Math.sqrt(variance), s = 2 * normalCdf(d) - 1;
    const mean = Math.sqrt(2 / Math.PI) * Math.exp((-d * d) / 2) + d * s;
    const rest = Math.max(1 + d * d - mean * mean - s * s, 0);
    r2 += variance * rest;
    r4 += (variance * rest) ** 2;
    return { s, u: Math.sqrt(rest / variance) };
  });
  laws.forEach((law, a) => {
    A += weights[a] * (sum(law.map((x, j) => x * terms[j].s ** 2)) - sum(law.map((x, j) => x * terms[j].s)) ** 2);
    laws.forEach((otherLaw, b) => {
      const t = law.map((x, j) => terms[j].u * x * otherLaw[j]);
      B += weights[a] * weights[b] * (sum(t) ** 2 - sum(t.map((x) => x * x)));
    });
  });
  B += r2;
  if (!(A + B > 0)) return { deviation: 0, skew: 0 };
  const n = r2 ** 2 / Math.max(r4, 1e-300);
  return { deviation: Math.sqrt(A + B) / 2, skew: (0.995 / Math.sqrt(Math.max(1, n - 1))) * (B / (A + B)) ** 1.5 };
}

/** Mean and 95 % point of the largest distance of a pair, when the groups of a share f of the persons are known. */
function knownShare(table, f, persons) {
  const sizes = table.map(sum), isExact = !persons && largest(sizes) <= 1e7;
  const left = sizes.map((n) => Math.max(halfToEven((1 - f) * n), 1));
  const w = (persons ?? sizes).map((n) => f / (1 - f) / Math.max(n - 1, 1)), p = table.map((row, a) => row.map((x) => x / sizes[a]));
  const laws = pairsOf([...table.keys()]).map(([a, b]) => {
    const { deviation, skew } = spread(p[a], p[b], w[a], w[b]);
    const means = table[a].map((_, j) => {
      if (isExact) return meanDifference(lawOfRest(sizes[a], table[a][j], left[a]), lawOfRest(sizes[b], table[b][j], left[b]));
      const d = Math.abs(p[a][j] - p[b][j]), sigma = Math.sqrt(w[a] * p[a][j] * (1 - p[a][j]) + w[b] * p[b][j] * (1 - p[b][j]));
      if (sigma === 0) return d;
      return sigma * Math.sqrt(2 / Math.PI) * Math.exp(-((d / sigma) ** 2) / 2) + d * (1 - 2 * normalCdf(-d / sigma));
    });
    return { mean: sum(means) / 2, deviation: Math.max(1.05 * deviation, 1e-12), g: Math.max(skew, 1e-6) / 3 };
  });
  const start = largest(laws.map((law) => law.mean - 8 * law.deviation));
  const step = (largest(laws.map((law) => law.mean + 12 * law.deviation)) - start) / 1000;
  const F = Array.from({ length: 1001 }, (_, i) => laws.reduce((product, { mean, deviation, g }) => {
    const inside = 1 + 2 * g * ((start + i * step - mean) / deviation + g / 2);  // Cornish and Fisher's first terms
    return inside > 0 ? product * normalCdf((Math.sqrt(inside) - 1) / g) : 0;
  }, 1));
  const i = F.findIndex((x) => x > 0.95);
  const point = start + step * (i - 1 + (0.95 - F[i - 1]) / (F[i] - F[i - 1]));
  const mean = laws.length === 1 ? laws[0].mean : start + step * sum(F.slice(1).map((x, j) => 1 - (x + F[j]) / 2));
  return { mean: Math.min(1, mean), point: Math.min(1, point + 0.5 / [...left].sort((a, b) => a - b)[1]) };
}

/** The distance between the groups of a table, counted, and what becomes of it when some groups are known. */
function tableStatement(counts, persons) {
  const groups = Object.keys(counts.n), apart = groups.filter((group) => counts.merged[group] > 0);
  const table = groups.map((g) => [...counts.counts[g], ...apart.map((other) => (other === g ? counts.merged[g] : 0))]);
  const weights = Object.keys(persons).length ? groups.map((group) => persons[group]) : null;
  const found = [0.01, 0.1, 0.5].map((f) => [String(f), knownShare(table, f, weights)]);
  const delta = largest(pairsOf(table.map(shares)).map((pair) => distance(...pair)));
  return {
    about: "table", by: "counted", distance: delta, observed: delta, counts, persons,
    known: Object.fromEntries(found.map(([f, { mean }]) => [f, mean])), known_half: found[2][1].point,
  };
}

/** A bound for persons to come from persons whom the model has not seen (McDiarmid's inequality). */
function heldOutStatement({ law, given, counts, delta }) {
  const groups = Object.keys(counts.n), L = -Math.log(delta);
  const p = groups.map((g) => shares([...counts.counts[g], counts.merged[g]]));
  const n = groups.map((g) => counts.n[g]), pairs = pairsOf([...groups.keys()]);
  const far = pairs.map(([a, b]) => distance(p[a].slice(0, -1), p[b].slice(0, -1)) + (p[a].at(-1) + p[b].at(-1)) / 2);
  const apart = pairs.map(([a, b]) => Math.sqrt(((L + Math.log(pairs.length)) / 2) * (1 / n[a] + 1 / n[b])));
  const together = Math.sqrt((L / 2) * sum(n.map((x) => 1 / x)));
  const upper = largest(far.map((d, i) => d + (together < largest(apart) ? together : apart[i])));
  const found = { distance: Math.min(1, upper), observed: Math.min(1, largest(far)) };
  return { about: "population", by: "held-out", law, given, counts, delta, ...found };
}

/** Uniform numbers in (0, 1): sfc32 with a fixed seed. */
function uniformNumbers() {
  let [a, b, c, d] = [0x9e3779b9, 0x243f6a88, 0xb7e15162, 1];
  const next = () => {
    const t = (((a + b) | 0) + d) | 0;
    d = (d + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = ((c << 21) | (c >>> 11)) + t | 0;
    return ((t >>> 0) + 0.5) / 4294967296;
  };
  for (let i = 0; i < 20; i++) next();
  return next;
}

/** A gamma variable of a shape of at least 1, by Marsaglia and Tsang. */
function gamma(shape, uniform) {
  const d = shape - 1 / 3, c = 1 / Math.sqrt(9 * d);
  for (;;) {
    const x = Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()), v = (1 + c * x) ** 3;
    if (v > 0 && Math.log(uniform()) < (x * x) / 2 + d - d * v + d * Math.log(v)) return d * v;
  }
}

/** Draw the probabilities of a group's cells: those of the first leaves, times those of the cells in each leaf. */
function drawnCells(levels, places, a, uniform) {
  let p = null;
  for (let level = levels.length - 1; level >= 0; level--) {
    const own = levels[level][a].map((b) => gamma(b, uniform)), at = p === null ? own.map(() => 0) : places[level];
    const above = p ?? [1], totals = above.map(() => 0);
    own.forEach((x, j) => { totals[at[j]] += x; });
    p = own.map((x, j) => (x / totals[at[j]]) * above[at[j]]);
  }
  return p;
}

/** The (1 - δ)-quantile of the largest distance between groups whose cells have Dirichlet laws, moved up for chance. */
function blocksBound(blocks, leaves, delta) {
  const k = blocks[0].length, size = blocks.length * k;
  if (k === 1) return 0;
  const stated = Math.max(20000, Math.min(Math.ceil(500 / delta), Math.floor(1e7 / size)));
  const mode = Math.floor((stated + 1) * (1 - delta)), low = Math.max(0, mode - 20 * Math.ceil(Math.sqrt(stated)));
  const p = lawByRatios(low, stated, Math.min(mode, stated), (x) => (((stated - x) / (x + 1)) * (1 - delta)) / delta);
  let above = 0, place = stated;
  while (place > low && above + p[place - low] <= 1e-6) above += p[place-- - low];
  if (place >= stated) return 1;
  const times = 4 * stated * size < 2e7 ? 4 : 1, found = new Float64Array(times * stated), uniform = uniformNumbers();
  const levels = [blocks, ...leaves.map((part) => Object.values(part.blocks))], places = leaves.map((part) => part.of_cell);
  const drawn = blocks.map(() => new Float64Array(k)), pairs = pairsOf(drawn);
  for (let i = 0; i < found.length; i++) {
    for (let a = 0; a < drawn.length; a++) drawn[a].set(drawnCells(levels, places, a, uniform));
    for (const [p, q] of pairs) found[i] = Math.max(found[i], distance(p, q));
  }
  return found.sort()[Math.min(times * place, found.length - 1)];
}

function blocksStatement({ blocks, leaves, delta }) {
  const first = leaves.length ? leaves.at(-1).blocks : blocks;
  const persons = Object.fromEntries(Object.entries(first).map(([group, b]) => [group, sum(b) - 1]));
  const distance = blocksBound(Object.values(blocks), leaves, delta);
  return { about: "population", by: "blocks", blocks, leaves, delta, persons, distance };
}

// The certificate ---------------------------------------------------------------------------------------------------

const FOUND_BY = {
  table: ["counted", "undisclosed"], together: ["undisclosed"], "table rank": ["undisclosed"],
  inside: ["undisclosed"], population: ["blocks", "narrow blocks", "mixed blocks", "held-out"], "population rank": ["narrow blocks"], "new persons": ["test"],
  model: ["model"], attack: ["adversary"], density: ["adversary"],
};
// To this script: the schema has statements that came after it.
const isUnknown = (s) => !(s.about in FOUND_BY) || !Object.values(FOUND_BY).flat().includes(s.by);
const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const result = (what, verdict, text) => ({ what, verdict, text });

/** Read a certificate by its schema, with the defaults filled in. Throw an error where the text is none. */
function readCertificate(text, schema) {
  refuseNamesThatStandTwice(text);
  const certificate = fitted(JSON.parse(text), schema, schema, "the certificate");
  const names = certificate.statements.map((s) => [s.about, s.group ?? s.law, s.given, ...s.of].join(" "));
  if (new Set(names).size < names.length) throw new Error("it states the same thing twice");
  for (const s of certificate.statements) {
    if (isUnknown(s)) continue;
    if (!FOUND_BY[s.about].includes(s.by)) throw new Error(`it cannot state ${s.about} by ${s.by}`);
    if (["density", "inside"].includes(s.about) !== (s.group !== null)) throw new Error(`it states ${s.about} of the group ${s.group}`);
  }
  if (certificate.parents && !certificate.contents) throw new Error("it states the contents of one of two linked tables");
  if (certificate.released === "panel" && !certificate.columns.includes("person")) throw new Error("no column numbers its persons");
  const isDay = (text) => !Number.isNaN(Date.parse(text)) && new Date(text).toISOString().slice(0, 10) === text;
  const until = certificate.about.valid_until, wrong = [certificate.issued, until].find((text) => !isDay(text));
  if (wrong !== undefined && wrong !== "until refuted") throw new Error(`${wrong} is not a day`);
  const blank = fitted({ about: "table", by: "counted", distance: 0 }, schema.$defs.Statement, schema, "a statement");
  return { ...certificate, blank };
}

/** Of two values under one name JSON.parse would take the last, another reader the first. */
function refuseNamesThatStandTwice(text) {
  const open = [];
  for (const [token, name] of text.matchAll(/("(?:[^"\\]|\\.)*")\s*:|"(?:[^"\\]|\\.)*"|[{}]/gs)) {
    if (token === "{") open.push(new Set());
    else if (token === "}") open.pop();
    else if (name && open.length) {
      if (open.at(-1).has(JSON.parse(name))) throw new Error(`the name ${name} stands twice`);
      open.at(-1).add(JSON.parse(name));
    }
  }
}

/** The value with its defaults, if it is as a JSON Schema asks for: those parts of the standard that ours uses. */
function fitted(value, schema, root, place) {
  const asked = schema.$ref ? root.$defs[schema.$ref.split("/").pop()] : schema;
  const fail = () => {
    throw new Error(`${place} cannot be ${JSON.stringify(value)?.slice(0, 40)}`);
  };
  if (asked.anyOf) return value === null ? null : fitted(value, asked.anyOf[0], root, place);
  if ("const" in asked && value !== asked.const) fail();
  if (asked.enum && !asked.enum.includes(value)) fail();
  const kind = Array.isArray(value) ? "array" : value === null ? "null" : typeof value;
  if (asked.type === "integer" ? !Number.isInteger(value) : asked.type && kind !== asked.type) fail();
  if (kind === "number" && !(value >= (asked.minimum ?? -Infinity) && value <= (asked.maximum ?? Number.MAX_VALUE))) fail();
  if (asked.pattern && !new RegExp(asked.pattern).test(value)) fail();
  if (kind === "array") {
    if (value.length < (asked.minItems ?? 0)) fail();
    return value.map((item, i) => fitted(item, asked.items, root, `${place}, ${i}`));
  }
  if (kind !== "object") return value;
  const fields = asked.properties ?? Object.fromEntries(Object.keys(value).map((name) => [name, asked.additionalProperties]));
  const unknown = Object.keys(value).filter((name) => !Object.hasOwn(fields, name));
  const lacking = (asked.required ?? []).filter((name) => !Object.hasOwn(value, name));
  if (unknown.length || lacking.length) throw new Error(`${place} ${unknown.length ? "has" : "lacks"} the field ${[...unknown, ...lacking][0]}`);
  return Object.fromEntries(Object.entries(fields).map(([name, field]) => {
    const item = Object.hasOwn(value, name) ? value[name] : "default" in field ? field.default : {};
    return [name, fitted(item, field, root, `${place}: ${name}`)];
  }));
}

/** The names of the fields in which two statements differ; numbers do so by more than a tolerance. */
function differing(stated, again, tolerance) {
  const agree = (one, other) =>
    typeof one === "number" && typeof other === "number" ? Math.abs(one - other) <= tolerance
    : one === null || other === null || typeof one !== "object" ? one === other
    : same(Object.keys(one).sort(), Object.keys(other).sort()) && Object.keys(one).every((key) => agree(one[key], other[key]));
  return Object.keys(stated).filter((name) => name !== "met" && !agree(stated[name], again[name]));
}

const TOLERANCE = 1e-7;  // of sums; their last digits differ between machines
const MOST_WORK = 5e6;  // of computing a bound again
const TOLERANCE_OF_DRAWS = 0.03;  // relative: the quantile is found by draws, here with other random numbers

function* checkStatements(c) {
  const wrong = faultOfCounts(c), headline = headlineOf(c);
  if (wrong) return yield result("counts", "FAILED", wrong);
  if (!headline) yield result("counts", "note", "It certifies nothing about the true distribution, so there are no counts.");
  else {
    const counted = Object.entries(c.n).map(([group, n]) => `${n.toLocaleString("en")} of '${group}'`).join(", ");
    yield result("counts", "ok", `${counted} were counted; all sums agree.`);
    const wrongError = faultOfSpending(c);
    const isOpen = c.statements.some((s) => isUnknown(s) && s.delta > 0);
    const said = `The probability of error is δ = ${c.delta}${isOpen ? " of the statements that this page knows" : ", as was asked for"}.`;
    yield result("error", wrongError ? "FAILED" : isOpen ? "UNKNOWN" : "ok", wrongError || said);
    if (wrongError) return;
  }
  for (const s of c.statements) {
    if (isUnknown(s)) yield result(`bound, ${s.about}`, "UNKNOWN", "This page does not know statements of this kind.");
    else if (["narrow blocks", "mixed blocks"].includes(s.by)) yield result(`bound, ${saidOf(s, c)}`, "UNKNOWN", `It states ${s.distance.toFixed(6)}. This page does not compute it again; \`fairflows check\` does.`);
    else if (s.by === "undisclosed") yield result(`bound, ${saidOf(s, c)}`, "note", `It states ${s.distance}. Its counts are not printed, because they would tell of few persons.`);
    else if (s.about === "table") yield* compared(c, s, tableStatement(s.counts, s.persons), 0);
    else if (s.by === "blocks") yield* compared(c, s, blocksStatement(s), TOLERANCE_OF_DRAWS);
    else if (s.about === "population") yield* compared(c, s, heldOutStatement(s), 0);
  }
  const status = statusOf(c), unmet = c.statements.find((s) => !isUnknown(s) && s.met !== isMet(s, c.target));
  const mayBe = status === "CERTIFIED" || c.status !== "CERTIFIED";  // another statement makes a status no better
  if (c.statements.some(isUnknown) && mayBe && !unmet) {
    yield result("status", "UNKNOWN", `${status} follows from the bounds that this page knows; it says ${c.status}.`);
  } else if (status !== c.status) yield result("status", "FAILED", `The bounds make it ${status}; it says ${c.status}.`);
  else if (unmet) yield result("status", "FAILED", `It says met = ${unmet.met} of ${saidOf(unmet, c)}, which is wrong.`);
  else yield result("status", "ok", `${status} follows from the bounds.`);
}

function* compared(c, stated, again, ofDraws) {
  const about = saidOf(stated, c), gap = Math.abs(stated.distance - again.distance);
  const isClose = gap <= Math.max(TOLERANCE, ofDraws * Math.max(stated.distance, again.distance));
  const within = ofDraws ? `, within ${100 * ofDraws} % because it is found by random draws` : "";
  const known = stated.known_half === null ? "" : `; with half of the groups known Δ ≤ ${again.known_half.toFixed(6)}`;
  if (isClose) yield result(`bound, ${about}`, "ok", `Δ = ${again.distance.toFixed(6)}${known} follows from the counts, as it says${within}.`);
  const whole = { ...c.blank, ...again };
  for (const name of differing(stated, whole, TOLERANCE)) {
    if (name === "distance" && isClose) continue;
    const text = `${name} = ${JSON.stringify(whole[name])} follows from the counts; it says ${JSON.stringify(stated[name])}.`;
    yield result(`${name === "distance" ? "bound" : name}, ${about}`, "FAILED", text);
  }
}

const find = (c, about) => c.statements.find((s) => s.about === about && s.law === "row" && s.given === null && s.group === null && !isOfSome(s));
const isOfSome = (s) => s.of.length > 0;  // of several sensitive columns
const headlineOf = (c) => find(c, "table") ?? find(c, "population");
const isWithin = (s, met) => (met === null ? s.distance < 1 : met);

function saidOf(s, c) {
  const unit = c.released === "panel" ? "all rows of a random person" : `a random ${s.law}`;
  const about = (s.about === "population" ? unit : `${s.about}, ${unit}`) + (isOfSome(s) ? `, of ${s.of.join(" and ")}` : "");
  return s.given === null ? about : `${about} given label ${s.given}`;
}

function isMet(s, target) {
  if (["inside", "attack", "density", "new persons"].includes(s.about) || s.given !== null || target === null) return null;
  if (!["table", "together", "table rank"].includes(s.about)) return s.distance <= target;
  const hasFew = s.counts !== null && Object.values(s.counts.merged).some((n) => n !== 0);
  return s.distance <= target && s.known_half !== null && s.known_half <= target && !hasFew;
}

function statusOf(c) {
  const [tested, attack, model, headline] = [find(c, "new persons"), find(c, "attack"), find(c, "model"), headlineOf(c)];
  if (tested && tested.p_value !== null && tested.p_value < 0.001) return "REFUTED";
  const stated = ["together", "table rank"].map((about) => find(c, about) ?? headline);
  if ([headline, ...stated].every((s) => s && isWithin(s, isMet(s, c.target)))) return "CERTIFIED";
  if (attack && model && attack.distance > model.distance) return "REFUTED";
  return model && isWithin(model, isMet(model, c.target)) ? "MODEL_ONLY" : "NOT_MET";
}

function faultOfCounts(c) {
  const groups = Object.keys(c.n), sameNumbers = (n) => same(Object.entries(n).sort(), Object.entries(c.n).sort());
  for (const s of c.statements) {
    const fault = faultOfStatement(s, c, groups, sameNumbers);
    if (fault) return `${fault} (${saidOf(s, c)}).`;
  }
  const heldOut = c.statements.filter((s) => s.by === "held-out"), given = heldOut.filter((s) => s.given !== null);
  const every = heldOut.find((s) => s.law === "row" && s.given === null);
  if (!every) return heldOut.length ? "It states bounds on the true distribution, but none for a random row." : "";
  const ofLabels = (group) => sum(given.map((s) => s.counts.n[group]));
  if (!sameNumbers(every.counts.n) || (given.length && groups.some((group) => ofLabels(group) !== c.n[group]))) {
    return "The counts do not sum up to the number of persons of each group.";
  }
  for (const group of given.length ? groups : []) {
    const inside = (cell) => sum(given.map(({ counts }) => counts.counts[group][counts.cells.indexOf(cell)] ?? 0));
    const isMore = every.counts.cells.some((cell, j) => inside(cell) > every.counts.counts[group][j]);
    if (isMore) return `A cell has more persons of '${group}' given the labels than it has in all.`;
  }
  return "";
}

/** About how long a bound takes: a draw for each cell of a group takes as long as 20 pairs of groups. */
function workOf(s) {
  const parts = [s.blocks, s.counts?.counts ?? {}].map(Object.values), groups = largest(parts.map((rows) => rows.length));
  return largest(parts.map((rows) => rows[0]?.length ?? 0)) * groups * (20 + Math.floor(groups / 2));
}

function faultOfLeaves(s) {
  let below = s.blocks;
  for (const { of_cell: place, blocks } of s.leaves) {
    const k = Math.max(-1, ...place) + 1;
    if (!same(Object.keys(blocks), Object.keys(s.blocks)) || Object.values(blocks).some((b) => b.length !== k || b.some((x) => x < 1))) {
      return "The leaves that were cut further are not of the groups that it names, or have no blocks";
    }
    if (Object.values(below).some((b) => b.length !== place.length) || new Set(place).size !== k) return "There must be one leaf for each cell";
    for (const [group, own] of Object.entries(blocks)) {
      const inside = own.map(() => 0);
      place.forEach((leaf, j) => { inside[leaf] += below[group][j]; });
      if (inside.some((n, leaf) => n > own[leaf])) return "The cells of a leaf have more blocks than the leaf";
    }
    below = blocks;
  }
  return "";
}

function faultOfStatement(s, c, groups, sameNumbers) {
  if (workOf(s) > MOST_WORK) return "It counts so many groups and cells that its bound would take hours to compute again";
  if (isUnknown(s)) return "";
  if (s.about === "table rank" && groups.length !== 2) return "It states the rank of an attribute that is not cut, and has not the two groups of its halves";
  const isSampled = ["held-out", "blocks", "narrow blocks", "mixed blocks"].includes(s.by), k = c.n_cells ?? 0;
  if (c.released === "latent" && ["table", "population"].includes(s.about)) return "It counts cells, which say nothing about a latent";
  if (c.labels.length && s.by.endsWith("blocks")) return "The law of cells says nothing about true labels, which are released, too";
  if ((s.counts === null) !== !["counted", "held-out"].includes(s.by)) return "Its distance and its counts do not belong together";
  const isAlone = isOfSome(s) || s.about === "table rank";
  if ((s.by === "undisclosed" || s.about === "together") && !isAlone && !c.previous.length) return "It states releases together, and names no earlier one";
  if (s.by === "undisclosed") return "";
  if (s.about === "table") {
    const persons = Object.entries(s.persons);
    if (!sameNumbers(s.counts.n) && c.statements.every((other) => other.by !== "held-out")) {
      return "The counts do not sum up to the number of rows of each group";
    }
    if (persons.length && !same(Object.keys(s.persons), groups)) return "The persons are not of the groups that it names";
    if (persons.some(([group, n]) => group in s.counts.n && !(1 <= n && n <= s.counts.n[group]))) return "There are more persons than rows";
  } else if (s.by === "blocks") {
    const blocks = Object.values(s.blocks);
    if (!same(Object.keys(s.blocks), groups) || groups.length < 2) return "The blocks are not of the groups that it names";
    if (blocks.some((b) => b.length !== blocks[0].length)) return "There must be one number of blocks of each group for each cell";
    if (blocks.some((b) => !b.length || b.some((x) => x < 1))) return "A number of blocks is below 1";
    if (!find(c, "table") || blocks[0].length !== c.n_cells) return "The blocks are not of the cells that were counted";
    const fault = faultOfLeaves(s);
    if (fault) return fault;
    const first = s.leaves.length ? s.leaves.at(-1).blocks : s.blocks, cut = (group) => sum(first[group]) - 1;
    if (groups.some((g) => cut(g) !== s.persons[g] || (cut(g) > c.n[g] && !c.previous.length))) return "The blocks are not those of the persons that it names";
  }
  if (s.counts !== null) {
    const { n, cells, counts, merged } = s.counts, rows = Object.values(counts);
    if (groups.length < 2 || [n, counts, merged].some((part) => !same(Object.keys(part), groups))) return "The counts are not of the groups that it names";
    if (cells.some((cell, j) => j && cell <= cells[j - 1]) || rows.some((row) => row.length !== cells.length)) return "There must be one count of each group for each cell";
    if (cells.length && cells.at(-1) >= k) return `Cells must be in 0 … ${k - 1}`;
    if ([...cells, ...rows.flat(), ...Object.values(merged)].some((x) => x < 0)) return "A count is negative";
    if (groups.some((g) => sum(counts[g]) + merged[g] !== n[g])) return "The counts do not sum up to the number of persons of each group";
  }
  const isExact = ["table", "population", "population rank"].includes(s.about) && (s.delta > 0) !== isSampled;
  return isExact || s.delta >= 1 ? "delta must be a probability, and 0 where nothing is left to chance" : "";
}

function faultOfSpending(c) {
  if (!(c.delta > 0 && c.delta < 1)) return "delta must be between 0 and 1.";
  const allowed = c.look ? (c.delta * 6) / (Math.PI * c.look) ** 2 : c.delta, spent = new Map();
  for (const s of c.statements.filter((each) => ["population", "population rank"].includes(each.about) && !isUnknown(each))) {
    if (["blocks", "narrow blocks", "mixed blocks"].includes(s.by) !== (c.look === 0)) return "Counting looks at held-out persons; trees look at none.";
    const name = s.about === "population rank" ? "a rank" : isOfSome(s) ? s.of.join(" and ") : `a random ${s.law}${s.given === null ? "" : ", given the labels"}`;
    spent.set(name, (spent.get(name) ?? 0) + s.delta);
  }
  const wrong = [...spent].find(([, found]) => Math.abs(found - allowed) > 1e-9);
  return wrong ? `The bounds on ${wrong[0]} spend ${wrong[1]}; they may spend ${allowed}.` : "";
}

// The file ----------------------------------------------------------------------------------------------------------

const SEPARATORS = [",", ";", "\t", "|"];
const MISSING = new Set(["NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null", "None"]);
const NUMBER = /^-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;
const TIME = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d)?(\.\d+)?)? ?(Z|[+-][\d:]{2,6})?$/;
const utf8 = new TextEncoder();
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const framed = (text) => `${utf8.encode(text).length}:${text}`;

/** The one text of a value, in whatever form it comes; null for a value of another kind. */
function canonical(text, kind) {
  if (kind === "text") return text.replace(/\r\n?/g, "\n");
  text = text.trim();
  if (text === "" || MISSING.has(text)) return "";
  if (kind === "booleans") return /^(true|false)$/i.test(text) ? text.toLowerCase() : null;
  if (kind.startsWith("times")) return canonicalTime(text, kind === "times with a time zone");
  const plain = text.replaceAll(",", ".").replace(/^\+/, ""), number = NUMBER.test(plain) ? Number(plain) : null;
  if (kind === "whole numbers") {
    const digits = /^\+?(-?)0*(\d+)(\.0*)?$/.exec(text);
    if (digits) return (digits[1] + digits[2]).replace(/^-0$/, "0");
    return number !== null && Number.isInteger(number) && Math.abs(number) < 2 ** 63 ? String(BigInt(number)) : null;
  }
  if (!kind.startsWith("numbers")) throw new Error(`this page cannot read ${kind}`);
  if (number === null) return null;
  const view = new DataView(new ArrayBuffer(8)), isSingle = kind !== "numbers";
  if (isSingle) view.setFloat32(0, number + 0);
  else view.setFloat64(0, Number(number.toPrecision(15)) + 0);
  return hex(new Uint8Array(view.buffer)).slice(0, isSingle ? 8 : 16);
}

function canonicalTime(text, isZoned) {
  const parts = TIME.exec(text);
  if (!parts || isZoned !== (parts[5] !== undefined)) return null;
  let [, day, minute = "00:00", second = ":00", below = "", zone = "Z"] = parts;
  const shift = /^([+-])(\d\d):?(\d\d)?$/.exec(zone), at = Date.parse(`${day}T${minute}Z`);
  if (shift && Number.isNaN(at)) return null;
  if (shift) {
    const later = Number(`${shift[1]}1`) * (60 * Number(shift[2]) + Number(shift[3] ?? 0));
    [day, minute] = new Date(at - 60000 * later).toISOString().slice(0, 16).split("T");
  }
  return `${day}T${minute}${second}${below.replace(/\.?0*$/, "")}`;
}

/** The rows of a CSV file, as lists of texts, without empty lines. */
function parse(text, separator, most = Infinity) {
  const rows = [];
  let row = [], value = "", isQuoted = false;
  for (let i = 0; i < text.length && rows.length < most; i++) {
    const c = text[i];
    if (isQuoted) {
      if (c !== '"') value += c;
      else if (text[i + 1] === '"') value += text[++i];
      else isQuoted = false;
    } else if (c === '"' && value === "") isQuoted = true;
    else if (c === separator) row.push(value), (value = "");
    else if (c === "\n" || c === "\r") {
      if (row.length || value !== "") rows.push([...row, value]);
      (row = []), (value = "");
    } else value += c;
  }
  if (isQuoted) throw new Error("a quote is never closed");
  if ((row.length || value !== "") && rows.length < most) rows.push([...row, value]);
  return rows;
}

function decoded(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    const mark = hex(bytes.slice(0, 2)), encoding = { fffe: "utf-16le", feff: "utf-16be" }[mark] ?? "windows-1252";
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  }
}

async function readCsv(name, bytes, columns) {
  if (/\.gz$/i.test(name)) {
    const opened = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    bytes = new Uint8Array(await new Response(opened).arrayBuffer());
  }
  const text = decoded(bytes), isMeant = (mark) => same([...new Set(parse(text, mark, 1)[0])].sort(), [...columns].sort());
  const [header, ...rows] = parse(text, SEPARATORS.find(isMeant) ?? ",");
  if (!header) throw new Error("the file is empty");
  if (new Set(header).size < header.length) throw new Error("two columns have the same name");
  return { header: header.map((name, j) => name || `Unnamed: ${j}`), rows };
}

/** The digest of a table's contents, which the order of rows and columns and the form of the file do not change. */
async function contentsDigest({ header, rows }, kinds) {
  const points = (text) => Array.from(text, (c) => c.codePointAt(0).toString(16).padStart(6, "0")).join("");
  const names = Object.keys(kinds).sort((a, b) => (points(a) < points(b) ? -1 : 1));
  const lacking = names.find((name) => !header.includes(name)), other = header.find((name) => !names.includes(name));
  if (lacking !== undefined) throw new Error(`it lacks the column '${lacking}'`);
  if (other !== undefined || header.length !== names.length) throw new Error(`it holds the column '${other}', which was not released`);
  const places = names.map((name) => header.indexOf(name));
  const texts = rows.map((row, i) => {
    if (row.length !== header.length) throw new Error(`row ${i + 1} has ${row.length} fields and not ${header.length}`);
    return names.map((name, j) => {
      const found = canonical(row[places[j]], kinds[name]);
      if (found === null) throw new Error(`its column '${name}' holds '${row[places[j]]}' in row ${i + 1}, and ${kinds[name]} were released`);
      return framed(found);
    }).join("");
  });
  const digests = [];
  for (let start = 0; start < texts.length; start += 5000) {
    digests.push(...(await Promise.all(texts.slice(start, start + 5000).map((text) => sha256(utf8.encode(text))))).map(hex));
  }
  const head = utf8.encode(`fairflows contents 1\n${names.map((name) => framed(name) + framed(kinds[name])).join("")}\n`);
  const body = new Uint8Array(head.length + 32 * digests.length);
  body.set(head);
  digests.sort().forEach((digest, i) => body.set(digest.match(/../g).map((byte) => parseInt(byte, 16)), head.length + 32 * i));
  return hex(await sha256(body));
}

/** The certificate as it is about a file, which may be one of two linked tables. */
async function ofFile(c, { name, bytes }) {
  if (!c.parents) return c;
  const columns = Object.keys(c.parents.kinds), table = await readCsv(name, bytes, columns).catch(() => null);
  const isParents = table && same([...table.header].sort(), [...columns].sort());
  return isParents ? { ...c, contents: c.parents, columns } : { ...c, counted_file: "" };
}

async function* checkFile(c, { name, bytes }, hasCounts) {
  const found = hex(await sha256(bytes)), named = Object.keys(c.released_files).find((file) => c.released_files[file] === found);
  const isCsv = /\.(csv|tsv|txt|data)(\.gz)?$/i.test(name);
  let table = null, wrong = "", file;
  try {
    if (isCsv) table = await readCsv(name, bytes, Object.keys(c.contents?.kinds ?? Object.fromEntries(c.columns.map((column) => [column, ""]))));
  } catch (error) {
    wrong = error.message;
  }
  if (named) file = result("file", "ok", `It is '${named}', byte for byte, which the certificate names (SHA-256 ${found}).`);
  else if (!c.contents && name in c.released_files) file = result("file", "FAILED", `It is not the '${name}' that was released: it was changed or replaced.`);
  else if (!c.contents) file = result("file", "UNKNOWN", "No list names it. That it comes from the same model is only claimed.");
  else if (!isCsv) file = result("file", "UNKNOWN", "It is another file than the certificate names, and this page compares the values of CSV files alone.");
  else file = await compareContents(c, table, wrong);
  yield file;
  if (named && c.contents && isCsv) {
    const again = await compareContents(c, table, wrong, "");
    if (again.verdict === "FAILED") return yield { ...again, what: "contents" };
  }
  if (table) yield checkColumns(table.header, c);
  else if (file.verdict !== "FAILED") yield result("columns", "UNKNOWN", `This page cannot read the columns${wrong && `: ${wrong}`}.`);
  const headline = headlineOf(c);
  if (!hasCounts) return;
  if (!headline || !c.counted_file || file.verdict !== "ok" || !table) {
    return yield result("histogram", "note", "Not compared with the counts: its rows are not exactly those that were counted.");
  }
  const difference = differenceFromCounts(table, headline, c);
  yield result("histogram", difference ? "FAILED" : "ok", difference || "Its rows are as many as were counted, in each cell where it gives them.");
}

/** Compare the values in a file with those that the certificate states. */
async function compareContents(c, table, wrong, another = "It is not the table that was certified") {
  const fail = (reason) => result("file", "FAILED", `${another || "The certificate states other contents of it"}: ${reason}.`);
  if (wrong) return fail(wrong);
  try {
    const n = table.rows.length, isSame = (await contentsDigest(table, c.contents.kinds)) === c.contents.sha256;
    if (isSame && (n === c.contents.rows || another)) return result("file", "ok", "It holds what the certificate states, in another form.");
    return fail(n === c.contents.rows ? "a value in it is another one" : `it has ${n} rows; ${c.contents.rows} were released`);
  } catch (error) {
    return fail(error.message);
  }
}

function checkColumns(header, c) {
  const sensitive = header.find((name) => c.sensitive.includes(name) && !c.columns.includes(name));
  const other = header.find((name) => !c.columns.includes(name)), lacking = c.columns.find((name) => !header.includes(name));
  if (sensitive !== undefined) return result("columns", "FAILED", `It holds the sensitive column '${sensitive}': it is not a released file.`);
  if (new Set(c.columns).size < c.columns.length || (c.released === "cell" && !c.columns.includes("cell"))) {
    return result("columns", "FAILED", `No released ${c.released} has the columns ${c.columns.join(", ")}.`);
  }
  if (other !== undefined) return result("columns", "FAILED", `It holds the column '${other}', which no released row has.`);
  if (lacking !== undefined) return result("columns", "FAILED", `It lacks the column '${lacking}', which every released row has.`);
  return result("columns", "ok", "It has the columns of a released row, and no others.");
}

function differenceFromCounts({ header, rows }, { about, counts }, c) {
  const counted = counts ? sum(Object.values(counts.n)) : 0, isPanel = c.released === "panel";
  const persons = new Set(rows.map((row) => row[header.indexOf("person")]));
  if (isPanel && !header.includes("person")) return "It has no column 'person', but persons were counted.";
  if (isPanel && persons.size !== counted) return `It has ${persons.size} persons; ${counted} were counted.`;
  if (!isPanel && rows.length !== counted) return `It has ${rows.length} rows; ${counted} were counted.`;
  const hasCells = c.released === "cell" && same(header, ["cell"]);
  if (!hasCells) return about === "table" ? "" : "It has no column 'cell', but cells were counted.";
  const found = new Map(), in_ = (j) => sum(Object.values(counts.counts).map((row) => row[j]));
  for (const [cell] of rows) found.set(canonical(cell, "whole numbers"), (found.get(canonical(cell, "whole numbers")) ?? 0) + 1);
  const different = counts.cells.filter((cell, j) => (found.get(String(cell)) ?? 0) !== in_(j));
  return different.length ? `${different.length} cells have other numbers of rows than were counted.` : "";
}

// All of it ---------------------------------------------------------------------------------------------------------

/** The result of every check of a certificate (its text) and of a file { name, bytes }, which may be missing. */
async function check(text, schema, file) {
  const c = readCertificate(text, schema), results = [...checkStatements(c)], until = c.about.valid_until;
  if (until !== "until refuted" && until < new Date().toISOString().slice(0, 10)) {
    results.push(result("validity", "FAILED", `Its issuer states that it was valid until ${until}.`));
  }
  results.push(result("author", "note", "Nothing here shows who wrote it, nor this page: get both from the producer directly."));
  c.previous.forEach((sha256, i) => results.push(result("previous", "note", `Release ${i + 1} of ${c.previous.length + 1}: its certificate (SHA-256 ${sha256.slice(0, 12)}…) is not here.`)));
  const hasCounts = results.every(({ what, verdict }) => what !== "counts" || verdict !== "FAILED");
  if (file) for await (const found of checkFile(await ofFile(c, file), file, hasCounts)) results.push(found);
  if (c.releases > 1) results.push(result("releases", "note", `It is release ${c.releases} of these rows, by the producer's record. Two, linked, may tell the group.`));
  if (c.statements.some((s) => ["model", "attack", "new persons"].includes(s.about))) {
    results.push(result("not checked", "note", "The model-based bound, the attack and tests do not follow from counts: they are taken on trust."));
  }
  if (c.statements.some((s) => s.counts)) {
    if (!find(c, "table")) results.push(result("covered", "note", "It is about new persons. Rows that the model was fitted to are not covered, even in the same file."));
    results.push(result("not checked", "note", "That persons were counted in their true groups, and that rows were drawn from their cells alone: only the holder of the model and the rows can show it."));
  }
  return results;
}

const SHOWN = { ok: "checked", FAILED: "failed", UNKNOWN: "cannot be known from here", note: "cannot be known from here" };

/** Check the files that were dropped: a table, and a certificate in place of the one that this page holds. */
async function show(files) {
  const said = document.getElementById("checked"), list = document.getElementById("results");
  said.textContent = "Checking …";
  list.replaceChildren();
  await new Promise((resolve) => setTimeout(resolve, 50));
  try {
    const isCertificate = (file) => /\.json$/i.test(file.name), other = files.find(isCertificate), table = files.find((file) => !isCertificate(file));
    const text = other ? await other.text() : document.getElementById("certificate").textContent;
    const bytes = table && new Uint8Array(await table.arrayBuffer());
    const results = await check(text, JSON.parse(document.getElementById("schema").textContent), table && { name: table.name, bytes });
    const failed = results.filter(({ verdict }) => verdict === "FAILED").length;
    const open = results.filter(({ verdict }) => verdict === "UNKNOWN").map(({ what }) => what);
    said.textContent = failed ? `Do not rely on this: ${failed} ${failed > 1 ? "checks" : "check"} failed.`
      : !open.length ? "All checks passed."
      : open.includes("file") ? "The numbers agree; that this file belongs to the certificate is only claimed."
      : `What this page knows agrees; ${open.join("; ")} cannot be known from here.`;
    for (const { what, verdict, text: reason } of results) {
      const [item, mark] = [document.createElement("li"), document.createElement("b")];
      item.className = verdict;
      mark.textContent = `${SHOWN[verdict]}: `;
      item.append(mark, `${what}. ${reason}`);
      list.append(item);
    }
  } catch (error) {
    said.textContent = `This cannot be checked: ${error.message}.`;
  }
}

if (typeof document !== "undefined") {
  const input = document.getElementById("files"), box = document.getElementById("drop");
  input.addEventListener("change", () => show([...input.files]));
  for (const event of ["dragover", "drop"]) box.addEventListener(event, (dropped) => dropped.preventDefault());
  box.addEventListener("drop", (dropped) => show([...dropped.dataTransfer.files]));
}
