/* Colours, dashes and marks of the series, the theme's colours, and numbers as texts. */
freeat.style = (() => {
  "use strict";

  const DARK = ["#5aa9e6", "#f08a4b", "#2cc295", "#e39bc4", "#f2c14e", "#9ad4f5", "#e8e8e8", "#a8a8a8"];
  const DASHES = [[], [8, 3], [2, 2.5], [9, 3, 2, 3], [5, 2], [12, 4], [3, 2, 1, 2], [1.5, 3]];
  const MARKS = [
    "circle",
    "rect",
    "triangle",
    "diamond",
    "path://M0,0 L10,0 L5,9 Z",
    "path://M3.5,0 H6.5 V3.5 H10 V6.5 H6.5 V10 H3.5 V6.5 H0 V3.5 H3.5 Z",
    "path://M0,1.5 L1.5,0 L5,3.5 L8.5,0 L10,1.5 L6.5,5 L10,8.5 L8.5,10 L5,6.5 L1.5,10 L0,8.5 L3.5,5 Z",
    "path://M5,0 L6.4,3.5 L10,3.8 L7.2,6.2 L8.1,10 L5,7.9 L1.9,10 L2.8,6.2 L0,3.8 L3.6,3.5 Z",
  ];
  const SHAPES = {
    circle: "M5,0 A5,5 0 1 1 4.99,0 Z",
    rect: "M0,0 H10 V10 H0 Z",
    triangle: "M5,0 L10,9 H0 Z",
    diamond: "M5,-1 L10,5 L5,11 L0,5 Z",
  };
  let light = [];

  const probe = document.createElement("span");
  const root = document.documentElement;

  /* A colour of the style sheet as it is now, in light or dark. */
  function named(name) {
    if (!probe.isConnected) document.body.append(Object.assign(probe, { hidden: true }));
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () =>
    root.dataset.printing === undefined && (root.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";

  /* What a chart takes from the style sheet, so that both change together. */
  const theme = () => ({
    ink: named("--ink"),
    muted: named("--muted"),
    line: named("--line"),
    surface: named("--surface"),
    heat: named("--heat"),
    over: named("--over-heat"),
    font: getComputedStyle(document.body).fontFamily,
  });

  const of = (list, index) => list[index % list.length];
  const colour = (index) => of(isDark() ? DARK : light, index);
  /* Once the colours are used up they come again with other dashes and marks. */
  const shifted = (index) => index + Math.floor(index / DARK.length);
  const dash = (index) => of(DASHES, shifted(index));
  const mark = (index) => of(MARKS, shifted(index));

  /* A short segment of a series' line with its mark, for the legend. */
  function swatch(index) {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", "0 0 34 12");
    svg.setAttribute("width", "34");
    svg.setAttribute("height", "12");
    svg.setAttribute("aria-hidden", "true");
    const line = document.createElementNS(svg.namespaceURI, "path");
    line.setAttribute("d", "M0,6 H34");
    line.setAttribute("stroke", colour(index));
    line.setAttribute("stroke-width", "2");
    line.setAttribute("stroke-dasharray", dash(index).join(" "));
    const shape = document.createElementNS(svg.namespaceURI, "path");
    const name = mark(index);
    shape.setAttribute("d", SHAPES[name] || name.slice("path://".length));
    shape.setAttribute("transform", "translate(12 1)");
    shape.setAttribute("fill", colour(index));
    svg.append(line, shape);
    return svg;
  }

  const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const raised = (k) => (k < 0 ? "⁻" : "") + String(Math.abs(k)).replace(/\d/g, (d) => SUPERSCRIPTS[d]);

  /* A power of ten, as plain digits while it is short. */
  function power(k) {
    if (Math.abs(k) <= 3 && Number.isInteger(k)) return String(Number((10 ** k).toPrecision(1)));
    return `10${raised(Math.round(k))}`;
  }

  /* A mark on a logarithmic axis. */
  function tick(x) {
    const k = Math.round(Math.log10(x));
    return Math.abs(Math.log10(x) - k) < 1e-9 ? power(k) : number(x);
  }

  /* A number with at most four digits that count. */
  function number(x) {
    if (x === null || x === undefined || Number.isNaN(x)) return "–";
    if (x === 0) return "0";
    const size = Math.abs(x);
    if (size >= 1e6 || size < 1e-3) {
      const k = Math.floor(Math.log10(size));
      return `${Number((x / 10 ** k).toPrecision(3))}·10${raised(k)}`;
    }
    return Number(x.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 6 }).replace(/,/g, "\u202f");
  }

  /* e^x as a text, also where it is beyond every number. */
  function fromLog(x) {
    if (Math.abs(x) < 600) return number(Math.exp(x));
    return `10${raised(Math.round(x / Math.LN10))}`;
  }

  return {
    usePalette: (colours) => {
      light = colours;
    },
    isDark, prefersDark, theme, colour, dash, mark, swatch, power, tick, number, fromLog,
  };
})();
