/* The charts: lines in panels with a switch for the x-axis and one for every series, and heat maps of counts. */
freeat.charts = (() => {
  "use strict";

  const { style } = freeat;
  const escaped = (text) => echarts.format.encodeHTML(String(text));
  const plots = new Map();

  /* A long page opens at once: a chart is drawn when it comes near the screen. */
  const nearness = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => plots.get(entry.target).draw()),
    { rootMargin: "800px" },
  );

  /* An ECharts instance in an element that follows its size; `option` is called at every redraw. */
  function plot(element, option, renderer = "svg") {
    let chart = null;
    const one = {
      draw: () => {
        if (chart) return;
        nearness.unobserve(element);
        chart = echarts.init(element, null, { renderer });
        one.redraw();
        new ResizeObserver(() => chart.resize()).observe(element);
      },
      redraw: () => {
        if (!chart) return;
        chart.resize();
        chart.setOption(option(), { notMerge: true });
      },
      /* On paper a drawing is scaled to the room it has there, whatever it had on the screen. */
      scale: (on) => {
        const drawing = element.querySelector("svg");
        if (!drawing) return;
        if (on) drawing.setAttribute("viewBox", `0 0 ${chart.getWidth()} ${chart.getHeight()}`);
        else drawing.removeAttribute("viewBox");
      },
    };
    plots.set(element, one);
    nearness.observe(element);
    return one;
  }

  const drawAll = () => plots.forEach((one) => one.draw());

  function redrawAll() {
    document.querySelectorAll("[data-swatch]").forEach((holder) => {
      holder.replaceChildren(style.swatch(Number(holder.dataset.swatch)));
    });
    plots.forEach((one) => one.redraw());
  }

  const scaleAll = (on) => plots.forEach((one) => one.scale(on));

  /* What all charts have in common. */
  function frame(theme) {
    const tick = { color: theme.muted, fontSize: 11.5, fontFamily: theme.font };
    const axis = {
      axisLine: { show: true, lineStyle: { color: theme.line } },
      axisTick: { show: false },
      axisLabel: { ...tick, hideOverlap: true },
      nameTextStyle: { ...tick, fontSize: 12 },
      splitLine: { lineStyle: { color: theme.line, width: 0.7, opacity: 0.7 } },
      minorTick: { show: false },
    };
    return {
      axis,
      base: {
        animation: !matchMedia("(prefers-reduced-motion: reduce)").matches,
        animationDuration: 250,
        animationDurationUpdate: 250,
        textStyle: { fontFamily: theme.font },
        grid: { left: 6, right: 26, top: 14, bottom: 34, containLabel: true },
      },
      tooltip: {
        confine: true,
        backgroundColor: theme.surface,
        borderColor: theme.line,
        textStyle: { color: theme.ink, fontSize: 12.5, fontFamily: theme.font },
      },
    };
  }

  /* The x-axis; where a chart has few distinct values, they are its ticks. */
  const FEW = 6;

  function xAxis(axis, common, values = []) {
    const distinct = [...new Set(values)];
    const few = distinct.length > 0 && distinct.length <= FEW;
    return {
      ...common,
      type: axis.log ? "log" : "value",
      axisLabel: {
        ...common.axisLabel,
        formatter: axis.log || few ? style.number : undefined,
        customValues: few ? [...(axis.log ? [] : [0]), ...distinct] : undefined,
      },
      name: axis.label.split(" (")[0], nameLocation: "middle", nameGap: 30,
      min: axis.log ? "dataMin" : undefined,
      /* Marks at the end of an axis with few values are drawn whole. */
      max: few && !axis.log ? ({ min, max }) => max + 0.02 * (max - Math.min(0, min)) : "dataMax",
      splitLine: { show: false },
    };
  }

  /* A logarithmic y-axis, marked at powers of ten, or between them too where there are few of them. */
  function logAxis(low, high, common) {
    const decades = Math.log10(high / low);
    const steps = decades > 2.5 ? [1] : decades > 0.8 ? [1, 2, 5] : [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9];
    const marks = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k += 1) {
      marks.push(...steps.map((step) => Number((step * 10 ** k).toPrecision(2))));
    }
    const within = marks.filter((mark) => mark >= low && mark <= high);
    return {
      ...common, type: "log", min: low, max: high,
      axisLabel: { ...common.axisLabel, formatter: style.tick, customValues: within },
      axisTick: { ...common.axisTick, customValues: within },
    };
  }

  /* The same around values, as far as such an axis can show them. */
  function logAxisAround(values, common) {
    const shown = values.filter((value) => value > 0);
    return shown.length ? logAxis(Math.min(...shown) / 1.25, Math.max(...shown) * 1.25, common) : logAxis(0.1, 10, common);
  }

  /* The interval of a series of one point, which has no band. */
  function whisker([x, low, high], api, index) {
    const [[left, bottom], [, top]] = [api.coord([x, low]), api.coord([x, high])];
    const bar = (x1, y1, x2, y2) => ({
      type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: style.colour(index), lineWidth: 2 },
    });
    const ends = [top, bottom].map((y) => bar(left - 5, y, left + 5, y));
    return { type: "group", children: [bar(left, bottom, left, top), ...ends] };
  }

  /* The band between the lowest and the highest, as one polygon. */
  function band(curve, axis, index) {
    const points = curve.x[axis.key]
      .map((x, k) => [x, curve.low[k], curve.high[k]])
      .filter(([, low, high]) => low !== null && high !== null);
    return {
      type: "custom", silent: true, clip: true, z: 1, data: points,
      dimensions: ["x", "low", "high"], encode: { x: 0, y: [1, 2] }, tooltip: { show: false },
      renderItem: (params, api) => {
        if (params.dataIndex > 0) return null;
        if (points.length === 1) return whisker(points[0], api, index);
        const up = points.map(([x, , high]) => api.coord([x, high]));
        const down = points.map(([x, low]) => api.coord([x, low])).reverse();
        return { type: "polygon", shape: { points: [...up, ...down] }, style: { fill: style.colour(index), opacity: 0.14 } };
      },
    };
  }

  function line(name, curve, axis, index) {
    const colour = style.colour(index);
    const every = Math.max(1, Math.floor(curve.y.length / 8));
    const plain = { type: "line", name, z: 2, data: curve.x[axis.key].map((x, k) => [x, curve.y[k]]), color: colour };
    if (curve.separate) {
      return {
        ...plain, type: "scatter", symbol: style.mark(index), symbolSize: 11,
        itemStyle: { color: "transparent", borderColor: colour, borderWidth: 1.8 },
      };
    }
    if (curve.limit) {
      return { ...plain, name: `bound, ${name}`, symbol: "none", lineStyle: { color: colour, width: 1, opacity: 0.9 } };
    }
    const single = curve.y.filter((value) => value !== null).length === 1;
    return {
      ...plain, z: single ? 4 : 2, symbol: style.mark(index), showAllSymbol: true,
      symbolSize: (value, { dataIndex }) => (single ? 12 : dataIndex % every === 0 ? 7 : 0),
      lineStyle: { color: colour, width: 2, type: style.dash(index).length ? style.dash(index) : "solid" },
      emphasis: { focus: "series" },
    };
  }

  /* A text among the lines, with a background of its own. */
  const label = (theme) => ({
    color: theme.muted, fontSize: 11, backgroundColor: theme.surface, padding: [1, 3], borderRadius: 3, distance: 3,
  });

  /* A height that means something, as a quiet line across. */
  function level(panel, theme) {
    return {
      type: "line", silent: true, data: [], z: 0,
      markLine: {
        silent: true, symbol: "none", animation: false, data: [{ yAxis: panel.level }],
        lineStyle: { color: theme.muted, type: "solid", width: 1, opacity: 0.6 },
        label: { ...label(theme), formatter: panel.meaning, position: "insideEndTop" },
      },
    };
  }

  /* The point of a series that is nearest to a position on the x-axis; null where it has none. */
  function nearest(data, x) {
    return data.reduce(
      (best, point) =>
        point[1] !== null && (best === null || Math.abs(point[0] - x) < Math.abs(best[0] - x)) ? point : best,
      null,
    );
  }

  /* Every series at the position of the pointer; where its nearest point is elsewhere, as on an axis of seconds, with that position. */
  function tooltipOf(axis, panel, drawn) {
    return (points) => {
      const x = [points].flat()[0].axisValue;
      const rows = drawn.flatMap(({ name, data, color }) => {
        const point = nearest(data, x);
        if (point === null) return [];
        const separate = style.number(point[0]) === style.number(x) ? "" : ` at ${style.number(point[0])}`;
        const mark = echarts.format.getTooltipMarker(color);
        return `<div>${mark}${escaped(name)} <b>${style.number(point[1])}</b> ${escaped(panel.unit)}${separate}</div>`;
      });
      return rows.length ? `<div>${escaped(axis.label)}: <b>${style.number(x)}</b></div>${rows.join("")}` : "";
    };
  }

  function lineChartOption(spec, index, state) {
    const theme = style.theme();
    const panel = spec.panels[index];
    const axis = spec.axes[state.axis];
    const { axis: common, base, tooltip } = frame(theme);
    const series = panel.level === null ? [] : [level(panel, theme)];
    const curves = spec.series.flatMap((one) => one.curves.filter((curve) => curve.panel === index));
    spec.series.forEach((one, k) => {
      if (state.off.has(k)) return;
      for (const curve of one.curves.filter((c) => c.panel === index)) {
        if (curve.low && curve.high) series.push(band(curve, axis, k));
        series.push(line(one.name, curve, axis, k));
      }
    });
    const drawn = series.filter((one) => one.name !== undefined);
    return {
      ...base,
      tooltip: {
        ...tooltip, trigger: "axis", axisPointer: { lineStyle: { color: theme.muted } },
        formatter: tooltipOf(axis, panel, drawn),
      },
      xAxis: xAxis(axis, common, curves.flatMap((curve) => curve.x[axis.key])),
      yAxis: panel.log
        ? logAxisAround(curves.flatMap((curve) => [...curve.y, ...(curve.low || []), ...(curve.high || [])]), common)
        : { ...common, type: "value", scale: true },
      series,
    };
  }

  /* A radio button for every x-axis there is. */
  function axisSwitch(spec, id, state, redraw) {
    const group = document.createElement("fieldset");
    group.className = "switch";
    const legend = document.createElement("legend");
    legend.textContent = "x-axis";
    group.append(legend);
    spec.axes.forEach((axis, k) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name: `${id}-axis`, value: axis.key, checked: k === state.axis });
      input.addEventListener("change", () => {
        state.axis = k;
        redraw();
      });
      const text = document.createElement("span");
      text.textContent = axis.label.split(" (")[0];
      label.append(input, text);
      group.append(label);
    });
    return group;
  }

  /* A button for every series, pressed while it is shown. */
  function legend(spec, state, redraw) {
    const group = document.createElement("div");
    group.className = "legend";
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Series shown");
    spec.series.forEach((one, k) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-pressed", "true");
      const holder = document.createElement("span");
      holder.dataset.swatch = k;
      holder.append(style.swatch(k));
      const text = document.createElement("span");
      text.textContent = one.name;
      button.append(holder, text);
      button.addEventListener("click", () => {
        const shown = state.off.delete(k);
        if (!shown) state.off.add(k);
        button.setAttribute("aria-pressed", String(shown));
        redraw();
      });
      group.append(button);
    });
    return group;
  }

  function lineChart(figure, spec, id) {
    const state = { axis: 0, off: new Set() };
    const panels = [...figure.querySelectorAll(".plot")].map((element, index) =>
      plot(element, () => lineChartOption(spec, index, state)),
    );
    const redraw = () => panels.forEach((one) => one.redraw());
    const controls = figure.querySelector(".controls");
    controls.append(legend(spec, state, redraw));
    if (spec.axes.length > 1) controls.append(axisSwitch(spec, id, state, redraw));
  }

  const tenth = (bin) => 10 ** (bin / 10);

  function heatMapOption(spec, panel) {
    const theme = style.theme();
    const { axis: common, base, tooltip } = frame(theme);
    const most = Math.log1p(Math.max(...panel.counts.map(([, , images]) => images)));
    const boxes = panel.counts.map(([column, bin, images]) => [
      panel.updates[column], panel.updates[column + 1], tenth(bin), tenth(bin + 1), images,
    ]);
    return {
      ...base,
      animation: false,
      tooltip: {
        ...tooltip,
        formatter: ({ value }) =>
          value.length === 5
            ? `updates ${value[0]}–${value[1]}<br>norm ${style.number(value[2])}–${style.number(value[3])}<br><b>${value[4]}</b> images`
            : `update ${value[0]}<br>smallest so far <b>${style.number(value[1])}</b>`,
      },
      xAxis: { ...xAxis({ label: spec.x_label }, common), min: 0 },
      yAxis: {
        ...logAxis(Math.min(...boxes.map((box) => box[2])), Math.max(...boxes.map((box) => box[3])), common),
        name: spec.y_label, nameLocation: "end", nameGap: 4,
        nameTextStyle: { ...common.nameTextStyle, align: "left" },
        splitLine: { show: false },
      },
      grid: { ...base.grid, top: 26 },
      series: [
        {
          type: "custom", data: boxes, encode: { x: [0, 1], y: [2, 3] }, clip: true,
          renderItem: (params, api) => {
            // opaque, and a little larger than they are, so that no seams show between the boxes at any scale
            const [left, top] = api.coord([api.value(0), api.value(3)]);
            const [right, bottom] = api.coord([api.value(1), api.value(2)]);
            const share = Math.min(1, 0.08 + (0.92 * Math.log1p(api.value(4))) / most);
            return {
              type: "rect",
              shape: { x: left, y: top, width: right - left + 0.7, height: bottom - top + 0.7 },
              style: { fill: echarts.color.lerp(share, [theme.surface, theme.heat]) },
            };
          },
        },
        {
          type: "line", symbol: "none", color: theme.over, lineStyle: { width: 2, color: theme.over },
          data: panel.smallest.flatMap((least, k) =>
            [panel.updates[k], panel.updates[k + 1]].map((update) => [update, least > 0 ? least : null]),
          ),
        },
      ],
    };
  }

  function heatMap(figure, spec) {
    figure.querySelectorAll(".plot").forEach((element, index) => {
      plot(element, () => heatMapOption(spec, spec.panels[index]), "canvas");
    });
  }

  return { lineChart, heatMap, plot, frame, label, xAxis, drawAll, redrawAll, scaleAll };
})();
