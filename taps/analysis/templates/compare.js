// Differences of two rows with 95 % intervals, from sums per question: taps.analysis.ratios, .intervals and .two_way
// written again; tests hold both to the same numbers. S training seeds, Q questions of a benchmark.
const FEWEST_QUESTIONS = 2, ROUNDING = 1e-6;

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

const total = (values) => values.reduce((one, two) => one + two, 0);
const fewest = (counts) => Math.min(...counts.filter((count) => count > 0), Infinity);

// One training seed of a row on a benchmark: the ratio, what each question adds to it, and how many there are.
function ratio(tops, bottoms) {
  const counts = bottoms.map((bottom) => bottom > 0);
  const number = total(counts.map(Number)), sum = total(bottoms);
  const value = sum > 0 ? total(tops) / sum : NaN;
  const moved = tops.map((top, q) => (counts[q] ? (top - value * bottoms[q]) / (sum - bottoms[q]) : 0));
  const shift = total(moved) / number, factor = Math.sqrt((number - 1) / number);
  const known = Number.isFinite(value) && number >= FEWEST_QUESTIONS;
  const residuals = moved.map((one, q) => (known && counts[q] ? (one - shift) * factor : 0));
  const effective = sum > 0 ? sum ** 2 / total(bottoms.map((bottom) => bottom ** 2)) : 0;
  return { value, residuals, number, effective };
}

// A row on a benchmark; null where it was not replayed. `seeds` holds places of tokens and cycles in the pool, or null.
function quantity(seeds, pool) {
  if (!seeds) return null;
  const each = seeds.map((places) => (places ? ratio(pool[places[0]], pool[places[1]]) : null));
  const held = each.filter(Boolean);
  return {
    values: each.map((seed) => (seed ? seed.value : NaN)),
    parts: [{ residuals: each.map((seed) => seed?.residuals), effective: fewest(held.map((seed) => seed.effective)) }],
    number: fewest(held.map((seed) => seed.number)),
    enough: held.every((seed) => seed.number >= FEWEST_QUESTIONS),
    scale: Math.max(...held.map((seed) => Math.abs(seed.value))),
  };
}

function minus(a, b) {
  const values = a.values.map((value, s) => value - b.values[s]);
  const parts = a.parts.map((part, place) => ({
    residuals: part.residuals.map((own, s) =>
      Number.isFinite(values[s]) ? own.map((one, q) => one - b.parts[place].residuals[s][q]) : null),
    effective: fewest([part.effective, b.parts[place].effective]),
  }));
  return { values, parts, number: Math.min(a.number, b.number), enough: a.enough && b.enough,
    scale: Math.max(a.scale, b.scale), isDifference: true };
}

// The mean of quantities on several benchmarks, each with a weight.
function mean(quantities, weights) {
  const values = quantities[0].values.map((_, s) => total(quantities.map((one, place) => weights[place] * one.values[s])));
  const parts = quantities.flatMap((one, place) => one.parts.map((part) => ({
    residuals: part.residuals.map((own, s) =>
      Number.isFinite(values[s]) && own ? own.map((value) => weights[place] * value) : null),
    effective: part.effective,
  })));
  return { values, parts, number: total(quantities.map((one) => one.number)), enough: quantities.every((one) => one.enough),
    scale: total(quantities.map((one, place) => weights[place] * one.scale)), isDifference: quantities[0].isDifference };
}

// The weights of the mean over benchmarks: domains weigh the same, and the benchmarks of a domain the same within it.
function balanced(domains) {
  return domains.map((domain) => 1 / (new Set(domains).size * domains.filter((other) => other === domain).length));
}

// Student's quantile of the 95 % interval, from the package's own table over 1 / degrees.
function tQuantile(degrees, table) {
  const place = (table.length - 1) / degrees, below = Math.min(Math.floor(place), table.length - 2);
  return table[below] + (place - below) * (table[below + 1] - table[below]);
}

// The half-width of the 95 % interval in standard errors, and the standard error.
function spread(item, table) {
  const seeds = item.values.filter(Number.isFinite).length;
  let ofQuestions = 0, squares = 0, denominator = 0, smallest = Infinity;
  for (const { residuals, effective } of item.parts) {
    const held = residuals.filter(Boolean);
    const means = (held[0] ?? []).map((_, q) => total(held.map((own) => own[q])) / Math.max(seeds, 1));
    const own = total(means.map((value) => value ** 2)), degrees = Math.max(effective - 1, 1);
    ofQuestions += own;
    denominator += own ** 2 / degrees;
    smallest = Math.min(smallest, degrees);
    squares += total(held.map((values) => total(values.map((value) => value ** 2)))) - seeds * own;
  }
  let quantile = tQuantile(ofQuestions > 0 ? ofQuestions ** 2 / denominator : smallest, table);
  let variance = ofQuestions;
  if (seeds > 1) {
    const centre = estimate(item);
    const present = item.values.filter(Number.isFinite);
    const ofSeeds = total(present.map((value) => (value - centre) ** 2)) / (seeds - 1) / seeds;
    const ofBoth = Math.max(squares, 0) / (seeds * (seeds - 1));
    variance = Math.max(ofQuestions + ofSeeds - ofBoth, ofQuestions, ofSeeds);
    const beyond = Math.max(ofSeeds - (ofBoth * (seeds - 2)) / (seeds - 1), 0);
    const share = beyond > 0 ? beyond / (beyond + ofQuestions) : 0;
    quantile += share * (tQuantile(seeds - 1, table) - quantile);
  }
  return { quantile, error: Math.sqrt(variance) };
}

function estimate(item) {
  const present = item.values.filter(Number.isFinite);
  return total(present) / present.length;
}

// Estimate, low and high; NaN for an interval that is not known, [0, 0] for a difference without any.
function interval(item, table) {
  const centre = estimate(item), { quantile, error } = spread(item, table), rounding = ROUNDING * item.scale;
  if (item.enough && error > rounding) return { estimate: centre, low: centre - quantile * error, high: centre + quantile * error };
  const isNone = item.enough && item.isDifference && Math.abs(centre) <= rounding;
  return isNone ? { estimate: 0, low: 0, high: 0 } : { estimate: centre, low: NaN, high: NaN };
}

// What the tool shows: per benchmark that both rows have, and for their mean, the rows and their difference.
function compared(data, a, b) {
  const condition = data.rows.filter((row) => row.condition === a.condition);
  const names = data.benchmarks.filter(({ name }) => condition.some((row) => row.sums[name])).map(({ name }) => name);
  const found = new Map(names.map((name) => [name, [a, b].map((row) => quantity(row.sums[name], data.pool))]));
  const pairs = [...found].filter(([, [one, two]]) => one && two);
  if (names.length > 1 && pairs.length === names.length) {
    const weights = balanced(names.map((name) => data.benchmarks.find((other) => other.name === name).domain));
    pairs.push(["mean", [0, 1].map((side) => mean(names.map((name) => found.get(name)[side]), weights))]);
  }
  return pairs.map(([name, [one, two]]) => {
    const apart = minus(one, two);
    const seeds = apart.values.filter(Number.isFinite).length;
    return { name, a: estimate(one), b: estimate(two), number: apart.number, seeds, ...interval(apart, data.quantiles) };
  }).filter(({ seeds }) => seeds > 0);
}

const shown = (value) => (Number.isFinite(value) ? value.toFixed(2).replace(/^-0\.00$/, "0.00") : "–");

function showComparison(data, form) {
  const [a, b] = ["a", "b"].map((name) => data.rows[form.elements[name].value]);
  const body = document.querySelector("#difference tbody"), titles = new Map(data.benchmarks.map(({ name, title }) => [name, title]));
  const labels = [...document.querySelectorAll("#difference thead th")].map((header) => header.textContent);
  const lines = compared(data, a, b);
  body.replaceChildren(...lines.map((line) => {
    const range = Number.isFinite(line.low) ? ` [${shown(line.low)}, ${shown(line.high)}]` : "";
    const cells = [shown(line.a), shown(line.b), shown(line.estimate) + range, String(line.number)];
    const row = document.createElement("tr"), name = row.appendChild(document.createElement("th"));
    name.scope = "row";
    name.textContent = titles.get(line.name) ?? line.name;
    cells.forEach((text, place) => {
      const cell = row.insertCell();
      cell.className = "number";
      cell.dataset.label = labels[place + 1];
      cell.textContent = text;
    });
    return row;
  }));
  const seeds = Math.max(0, ...lines.map((line) => line.seeds));
  document.getElementById("covers").textContent = lines.length === 0 ? "The two rows share no benchmark or no training seed."
    : seeds > 1 ? `Intervals cover questions and ${seeds} training seeds, paired by both.`
    : "Intervals cover questions only: the rows share one training seed.";
}

async function startComparison() {
  const data = await unpacked(document.getElementById("sums").textContent.trim());
  const form = document.getElementById("pair"), { condition, a, b } = form.elements;
  const fill = () => {
    const rows = data.rows.map((row, place) => ({ row, place })).filter(({ row }) => row.condition === condition.value);
    for (const [select, first] of [[a, 0], [b, 1]]) {
      const before = select.selectedOptions[0]?.textContent;
      select.replaceChildren(...rows.map(({ row, place }) => new Option(row.label, place)));
      const same = [...select.options].findIndex((option) => option.textContent === before);
      select.selectedIndex = same >= 0 ? same : Math.min(first, rows.length - 1);
    }
    showComparison(data, form);
  };
  condition.replaceChildren(...[...new Set(data.rows.map((row) => row.condition))].map((name) => new Option(name)));
  condition.addEventListener("change", fill);
  for (const select of [a, b]) select.addEventListener("change", () => showComparison(data, form));
  form.hidden = false;
  fill();
  return data;
}
