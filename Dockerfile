# The command alone, with torch's CPU build:  docker build -t fairflows . && docker run --rm -v "$PWD:/work" fairflows --help
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/fairflows \
 && /opt/fairflows/bin/pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu \
 && /opt/fairflows/bin/pip install --no-cache-dir .

FROM python:3.12-slim
COPY --from=build /opt/fairflows /opt/fairflows
# Models hold secrets: whoever runs the command should be nobody special.
RUN useradd --create-home fairflows
USER fairflows
WORKDIR /work
ENTRYPOINT ["/opt/fairflows/bin/fairflows"]
CMD ["--help"]
