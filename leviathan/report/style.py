"""The style sheet of a report's page: light and dark, phone and paper."""

SHEET = """\
:root {
  color-scheme: light dark;
  --text: #1b1f24;
  --quiet: #57606a;
  --ground: #ffffff;
  --stripe: #f4f6f8;
  --line: #d0d7de;
  --link: #0959b8;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e2e6ea;
    --quiet: #9aa4ae;
    --ground: #14181d;
    --stripe: #1c2229;
    --line: #363e47;
    --link: #79b8ff;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto;
  max-width: 74rem;
  padding: 1rem;
  background: var(--ground);
  color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
  overflow-wrap: anywhere;
}
h1, h2 { line-height: 1.2; text-wrap: balance; }
h2 {
  margin-top: 2.5rem;
  padding-top: 0.75rem;
  border-top: 1px solid var(--line);
}
p, figcaption { max-width: 46rem; }
a { color: var(--link); }
code {
  padding: 0.1em 0.3em;
  border-radius: 4px;
  background: var(--stripe);
  font: 0.875em ui-monospace, Menlo, Consolas, monospace;
}
nav ul {
  display: flex;
  flex-wrap: wrap;
  gap: 0.25rem 1.25rem;
  margin: 0;
  padding: 0;
  list-style: none;
}
figure { margin: 1.5rem 0; }
figure.picture {
  display: inline-block;
  width: 480px;
  max-width: 100%;
  vertical-align: top;
}
@media (min-width: 40rem) {
  figure.picture { margin-right: 2rem; }
}
figcaption { margin: 0.4rem 0; color: var(--quiet); font-size: 0.9rem; }
figcaption a { margin-left: 0.4em; white-space: nowrap; }
img {
  display: block;
  width: auto;
  max-width: 100%;
  height: auto;
  padding: 0.4rem;
  border-radius: 6px;
  background: #ffffff;
}
.scroll {
  max-width: 100%;
  overflow-x: auto;
  border: 1px solid var(--line);
  border-radius: 6px;
  width: fit-content;
}
table {
  border-collapse: collapse;
  font-size: 0.875rem;
  font-variant-numeric: tabular-nums;
  overflow-wrap: normal;
}
th, td {
  padding: 0.35rem 0.7rem;
  background: var(--ground);
  text-align: left;
  vertical-align: top;
}
th[scope="col"] { vertical-align: bottom; }
td.number { white-space: nowrap; }
td:not(.number) div {
  width: max-content;
  max-width: 26rem;
  overflow-wrap: anywhere;
}
th[scope="row"] div {
  width: max-content;
  max-width: min(20rem, 35vw);
  overflow-wrap: anywhere;
}
tr:nth-child(even) > * { background: var(--stripe); }
tr:first-child > * { border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
th[scope="row"] { font-weight: 500; }
th:first-child { position: sticky; left: 0; }
.number { text-align: right; }
@media print {
  :root {
    color-scheme: light;
    --text: #000000;
    --quiet: #333333;
    --ground: #ffffff;
    --stripe: #f4f6f8;
    --line: #999999;
    --link: #000000;
  }
  body { max-width: none; font-size: 10pt; }
  nav, figcaption a { display: none; }
  figure { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; border: 0; }
  table { font-size: 7.5pt; }
  td.number { white-space: normal; }
}
"""
