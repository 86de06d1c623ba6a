"use strict";
(async () => {
  // The policy knows the charts' library by its hash: it may be run from here, but not from a blob.
  async function load(id) {
    const packed = Uint8Array.from(atob(document.getElementById(id).textContent), (c) => c.charCodeAt(0));
    const script = document.createElement("script");
    script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
    document.head.append(script);
  }
  await load("plotly");
  const D = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement, $ = (id) => document.getElementById(id);
  const KINDS = { i1: Int8Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array };
  // Colours that can be told apart with any kind of colour vision; the cause alone is red-orange.
  const STAGES = ["#4477aa", "#66ccee", "#228833", "#aa3377", "#ccbb44", "#88a0bd", "#8fc9a5", "#7a5ea8", "#c9a66b", "#5b8a8a", "#b07aa1", "#6f7c8a", "#3d5a80", "#9dbf6b", "#d3a6cf", "#3f9c9c"];
  const state = { role: 0, stage: 0, measure: "slower", zoom: 0 };
  const PAPER = 680;  // pixels between the margins of A4, and of Letter
  let onScreen = null;  // the theme, while charts are drawn for paper

  const esc = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  function flat(packed) {
    const bytes = Uint8Array.from(atob(packed.b), (c) => c.charCodeAt(0));
    return Array.from(new KINDS[packed.k](bytes.buffer), (value) => (Number.isNaN(value) ? null : value));
  }
  function rows(packed) {
    const values = flat(packed), width = packed.s[1] || 0, made = [];
    for (let at = 0; at < packed.s[0]; at += 1) made.push(values.slice(at * width, (at + 1) * width));
    return made;
  }
  const role = () => D.roles[state.role], closely = () => D.zoom.roles[state.role].steps;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const color = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  function seconds(s) {
    if (s === null || s === undefined) return "–";
    const size = Math.abs(s);
    const [value, unit] = size >= 120 ? [s / 60, "min"] : size >= 1 ? [s, "s"] : size >= 1e-3 ? [s * 1e3, "ms"] : [s * 1e6, "µs"];
    return `${Number(value.toPrecision(3))} ${unit}`;
  }
  function unitOf(values) {
    const most = values.reduce((a, b) => Math.max(a, b || 0), 0);
    return most >= 300 ? [60, "minutes"] : most >= 1 ? [1, "seconds"] : most >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  }

  function layout(more) {
    const ink = color("--ink"), soft = color("--soft"), line = color("--line");
    const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickfont: { color: soft, size: 12 }, automargin: true, title: { font: { color: soft, size: 12 }, standoff: 8 } };
    const merged = (own) => ({ ...axis, ...own, title: own && own.title ? { ...axis.title, text: own.title } : axis.title });
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: getComputedStyle(document.body).fontFamily, color: ink, size: 12 },
      margin: { l: 12, r: 12, t: 10, b: 12 }, hoverlabel: { bgcolor: color("--raised"), bordercolor: line, font: { color: ink } }, bargap: 0.25,
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: ink }, traceorder: "normal" }, dragmode: "zoom",
      ...more, xaxis: merged(more.xaxis), yaxis: merged(more.yaxis), ...(onScreen === null ? {} : { width: PAPER }),
    };
  }
  const CONFIG = { displaylogo: false, responsive: true, showTips: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "toImage"] };
  function draw(key, traces, more) {
    const plot = $(`plot-${key}`);
    plot.style.minHeight = `${more.height}px`;
    return Plotly.react(plot, traces, layout(more), CONFIG);
  }
  const columnsOf = (r) => flat(r.steps), ofRole = () => (D.roles.length > 1 ? ` of ${esc(role().role)}` : "");
  const isNarrow = (key) => onScreen !== null || $(`plot-${key}`).clientWidth < 640;
  const legendHeight = (key, traces) => (isNarrow(key) ? 18 * traces.length : 0);
  // Words on lines of so many letters: the chart makes room for the longest line, and cuts nothing of it.
  function broken(text, most) {
    return text.split(" ").reduce((lines, word) => {
      if (lines.length && lines[lines.length - 1].length + word.length < most) lines[lines.length - 1] += ` ${word}`; else lines.push(word);
      return lines;
    }, []).map(esc);
  }
  // A stage has the same colour in every chart and every page: known ones by their key, others by their name.
  function toneOf(stage) {
    const known = D.stage_keys.indexOf(stage);
    return STAGES[(known >= 0 ? known : [...stage].reduce((sum, letter) => (31 * sum + letter.codePointAt(0)) >>> 0, 0)) % STAGES.length];
  }

  const charts = {
    steps() {
      const r = role(), steps = columnsOf(r), parts = rows(r.path.seconds), lengths = flat(r.path.length);
      const [size, unit] = unitOf(lengths), last = r.path.stages.length - 1;
      const traces = parts.map((part, at) => ({
        type: "bar", name: esc(r.path.stages[at]), x: steps, y: part.map((s) => s / size), marker: { color: at === last ? color("--line") : toneOf(r.path.stages[at]), line: { width: 0 } },
        customdata: part.map(seconds), hovertemplate: "step %{x}: %{customdata}<extra>%{fullData.name}</extra>",
      }));
      draw("steps", traces, { barmode: "stack", bargap: steps.length > 120 ? 0 : 0.1, height: 360 + legendHeight("steps", traces), xaxis: { title: `step${ofRole()}` }, yaxis: { title: unit, rangemode: "tozero" } });
    },
    heat() {
      const r = role(), entry = r.heat[state.stage] || r.heat[0], steps = columnsOf(r);
      const cells = rows(entry[state.measure]).map((row) => row.map((value) => (value === 127 ? null : value)));
      const slower = state.measure === "slower", values = cells.flat().filter((v) => v !== null).map(Math.abs).sort((a, b) => a - b);
      const limit = Math.max(slower ? 10 : 5, Math.min(100, values.length ? values[Math.floor(0.995 * (values.length - 1))] : 0));
      const ground = isDark() ? "#1f262e" : "#f4f5f7";
      const scale = slower ? [[0, "#2166ac"], [0.5, ground], [1, isDark() ? "#ff8a50" : "#c2410c"]] : [[0, ground], [1, isDark() ? "#9ecbff" : "#1f5fa8"]];
      draw("heat", [{
        type: "heatmap", x: steps, y: r.rows.map((name) => esc(name)), z: cells, zmin: slower ? -limit : 0, zmax: limit, colorscale: scale, hoverongaps: false, xgap: steps.length > 60 ? 0 : 1, ygap: r.rows.length > 40 ? 0 : 1,
        colorbar: { title: { text: slower ? "% longer" : "% of step" }, thickness: 10, outlinewidth: 0, len: 0.9, tickfont: { color: color("--soft") } },
        hovertemplate: `${/^\d/.test(r.rows[0]) ? "rank " : ""}%{y}, step %{x}: %{z} %${slower ? " longer than the others for its work" : " of the step waiting"}<extra></extra>`,
      }], { height: Math.min(760, Math.max(280, 90 + r.rows.length * 15)), xaxis: { title: `step${ofRole()}, ${entry.where === "before" ? "before" : "in"} ${esc(entry.stage)}`, showgrid: false }, yaxis: { title: r.members > r.rows.length ? "ranks" : "rank", type: "category", autorange: "reversed", showgrid: false } });
    },
    zoom() {
      const step = closely()[state.zoom], blamed = new Set(D.stragglers.slice(0, state.role ? 0 : 1).map((s) => s.who));  // of the first role
      const lanes = step.lanes.map((name) => (blamed.has(name) ? `<b>${esc(name)} ◂</b>` : esc(name)));
      const get = Object.fromEntries(["lane", "start", "length", "depth", "name", "stage"].map((k) => [k, flat(step[k])]));
      const stages = [...new Set(get.stage)].filter((s) => s !== 65535), traces = [];
      const deepest = Math.max(0, ...get.depth), thick = 0.84;
      const [size, unit] = unitOf(get.start.map((s, at) => s + get.length[at]));
      for (const stage of [...stages, 65535]) {
        const at = get.stage.map((s, place) => (s === stage ? place : -1)).filter((place) => place >= 0);
        if (!at.length) continue;
        const name = stage === 65535 ? "no stage" : D.zoom.names[stage];
        const tone = stage === 65535 ? color("--soft") : toneOf(name);
        traces.push({
          type: "bar", orientation: "h", name: esc(name), base: at.map((p) => get.start[p] / size), x: at.map((p) => get.length[p] / size),
          y: at.map((p) => get.lane[p] + (deepest ? (get.depth[p] / (deepest + 1) - 0.5 + 0.5 / (deepest + 1)) * thick : 0)), width: thick / (deepest + 1) * 0.92,
          marker: { color: tone, opacity: at.map((p) => (get.depth[p] ? 0.62 : 0.95)), line: { width: 0.6, color: color("--ground") } },
          text: at.map((p) => esc(D.zoom.names[get.name[p]])), textposition: "none", customdata: at.map((p) => [seconds(get.length[p]), lanes[get.lane[p]], seconds(get.start[p])]),
          hovertemplate: "%{text}: %{customdata[0]}<br>%{customdata[1]}, from %{customdata[2]}<extra></extra>",
        });
      }
      draw("zoom", traces, {
        barmode: "overlay", height: Math.min(900, Math.max(240, 90 + lanes.length * (deepest ? 34 : 24))) + legendHeight("zoom", traces), xaxis: { title: `${unit} in step ${step.step}${ofRole()}`, zeroline: false },
        yaxis: { tickvals: lanes.map((_, at) => at), ticktext: lanes, autorange: "reversed", showgrid: false, zeroline: false },
      });
    },
    tail() {
      const r = D.roles.find((other) => other.tails && other.tails.generates) || D.roles.find((other) => other.tails), t = r.tails, steps = columnsOf(r);
      const lines = { middle: flat(t.middle), p90: flat(t.p90), last: flat(t.last) }, [size, unit] = unitOf(lines.last);
      const line = (name, key, tone, fill) => ({
        type: "scatter", mode: "lines", name, x: steps, y: lines[key].map((s) => (s === null ? null : s / size)), line: { color: tone, width: key === "last" ? 2 : 1.5 }, customdata: lines[key].map(seconds),
        hovertemplate: `step %{x}: %{customdata}<extra>${name}</extra>`, ...(fill ? { fill: "tonexty", fillcolor: isDark() ? "rgba(255,154,102,.14)" : "rgba(194,65,12,.10)" } : {}),
      });
      draw("tail", [line("rank in the middle", "middle", color("--accent")), line("nine in ten", "p90", color("--soft")), line("last rank", "last", color("--cause"), true)],
        { height: 300, hovermode: "x unified", xaxis: { title: "step" }, yaxis: { title: `${unit} in ${esc(t.stage)}`, rangemode: "tozero" } });
    },
    rate() {
      const traces = [];
      for (const r of D.roles) for (const rate of r.rates) traces.push({
        type: "scatter", mode: "lines", name: esc(rate.stage), x: columnsOf(r), y: flat(rate.stage_rate), line: { width: 1.8, color: toneOf(rate.stage), dash: ["solid", "dash", "dot", "dashdot"][traces.length % 4] },
        hovertemplate: "step %{x}: %{y:,.0f} tokens/s<extra>%{fullData.name}</extra>",
      });
      draw("rate", traces, { height: 320, xaxis: { title: "step" }, yaxis: { title: "tokens/s", rangemode: "tozero" }, showlegend: true });
    },
    saves() {
      const list = D.what_if.slice().reverse(), labels = list.map((row) => broken(row.words, isNarrow("saves") ? 24 : 90));
      const tones = { straggler: color("--cause") };
      draw("saves", [{
        type: "bar", orientation: "h", x: list.map((row) => 100 * row.saved), y: labels.map((lines, at) => `${lines.join("<br>")}${" ".repeat(at % 2)}`), marker: { color: list.map((row) => tones[row.kind] || color("--accent")) },
        text: list.map((row) => `${(100 * row.saved).toFixed(1)} %`), textposition: list.map((row) => (row.saved < 0 ? "inside" : "outside")), cliponaxis: false, customdata: list.map((row) => [seconds(row.step / 1e9), seconds(row.without / 1e9)]),
        hovertemplate: "%{y}: %{customdata[1]} instead of %{customdata[0]}<extra></extra>",
      }], { height: 90 + labels.reduce((sum, lines) => sum + 14 + 16 * lines.length, 0), margin: { l: 12, r: 60, t: 6, b: 12 }, xaxis: { title: "% of a step", nticks: isNarrow("saves") ? 4 : 0, tickangle: 0 }, yaxis: { type: "category", showgrid: false, tickfont: { color: color("--ink"), size: 12 } } });
    },
  };
  const drawn = new Set();
  function show(key) {
    if (!charts[key] || !$(`plot-${key}`) || $(`plot-${key}`).closest("figure").hidden) return;
    const isNew = !drawn.has(key);
    drawn.add(key);
    charts[key]();
    if (isNew && key === "steps") $("plot-steps").on("plotly_click", (event) => near(event.points[0].x));
  }
  function look(place) {
    state.zoom = place;
    $("zoom").value = String(place);
    $("zoom-note").textContent = "";
    show("zoom");
  }
  function near(step) {
    if (!D.zoom || !$("zoom")) return;
    // A bar may stand for several steps: from its own to the one before the next bar's.
    const bars = columnsOf(role()), next = bars[bars.indexOf(step) + 1] || Infinity;
    const away = closely().map((one) => (one.step >= step && one.step < next ? 0 : Math.abs(one.step - step)));
    look(away.indexOf(Math.min(...away)));
    const kept = closely()[state.zoom].step, asked = next > step + 1 && next < Infinity ? `Of steps ${step} to ${next - 1} none is` : `Step ${step} is not`;
    if (away[state.zoom]) $("zoom-note").textContent = `${asked} kept in this page: the nearest that is, step ${kept}, is shown.`;
    $("plot-zoom").scrollIntoView({ block: "center" });
  }
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) { watch.unobserve(entry.target); show(entry.target.dataset.chart); }
  }, { rootMargin: "300px" });
  document.querySelectorAll("figure.chart").forEach((figure) => watch.observe(figure));
  const all = () => document.querySelectorAll("figure.chart").forEach((figure) => show(figure.dataset.chart));
  const theme = $("theme");
  function label() { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-pressed", String(isDark())); theme.setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`); }
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; label(); [...drawn].forEach(show); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { label(); [...drawn].forEach(show); });
  label();
  // Paper is white: the charts are drawn for it, and then again as they were.
  addEventListener("beforeprint", () => { if (onScreen === null) onScreen = root.dataset.theme || ""; root.dataset.theme = "light"; all(); });
  addEventListener("afterprint", () => {
    if (onScreen === null) return;
    if (onScreen) root.dataset.theme = onScreen; else delete root.dataset.theme;
    onScreen = null; label(); [...drawn].forEach(show);
    drawn.forEach((key) => Plotly.relayout($(`plot-${key}`), { autosize: true }));  // as wide as there is room again
  });
  const on = (id, change) => { if ($(id)) $(id).addEventListener("change", (event) => change(event.target.value)); };
  on("zoom", (value) => look(Number(value)));
  on("stage", (value) => { state.stage = Number(value); show("heat"); });
  // What is said of the chosen role, and charts only where it has something to draw.
  function say() {
    document.querySelectorAll("[data-role]").forEach((part) => { part.hidden = Number(part.dataset.role) !== state.role; });
    document.querySelectorAll("[data-labels]").forEach((plot) => {
      const words = JSON.parse(plot.dataset.labels)[state.role];
      plot.closest("figure").hidden = !words;
      if (words) plot.setAttribute("aria-label", words);
    });
  }
  function slowest() {
    if (!D.zoom || !$("zoom")) return;
    $("zoom").replaceChildren(...closely().map((step, at) => new Option(`step ${step.step}${step.why ? `, ${step.why}` : ""}`, at)));
    state.zoom = Math.max(0, closely().findIndex((step) => step.why === "the slowest"));
    $("zoom").value = String(state.zoom);
    $("zoom-note").textContent = "";
  }
  on("role", (value) => {
    state.role = Number(value); state.stage = 0;
    say(); slowest();
    const select = $("stage");
    if (select) select.replaceChildren(...role().heat.map((entry, at) => new Option(`${entry.where === "before" ? "before " : ""}${entry.stage}`, at)));
    [...drawn].forEach(show);
  });
  document.querySelectorAll("input[name=measure]").forEach((input) => input.addEventListener("change", () => { state.measure = input.value; show("heat"); }));
  if ($("copy")) $("copy").addEventListener("click", () => {
    const range = document.createRange();
    range.selectNodeContents($("next-command"));
    getSelection().removeAllRanges(); getSelection().addRange(range);
    document.execCommand("copy");
    $("copy").textContent = "Copied";
  });
  slowest();
  if (D.roles.length) {
    const blamed = D.stragglers[0], at = blamed ? role().heat.findIndex((entry) => entry.stage === blamed.stage && (entry.where === "before") === (blamed.where === "before")) : -1;
    if (at > 0 && $("stage")) { state.stage = at; $("stage").value = String(at); }
  }
  root.dataset.ready = String(Math.round(performance.now()));  // ms from the navigation on
})();
