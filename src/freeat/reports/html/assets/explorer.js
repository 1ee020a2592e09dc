/* The bound explorer: a slider and a number for every parameter; the bounds follow at once. */
freeat.explorer = (() => {
  "use strict";

  const { bounds, charts, style } = freeat;
  const STEPS = 1000;
  const FEW = 64;
  const POINTS = 120;

  /* Sliders are logarithmic: equal ways are equal factors. Small counts are taken one by one. */
  const isShort = (slider) => slider.whole && slider.high <= FEW;
  const stepsOf = (slider) => (isShort(slider) ? slider.high - slider.low : STEPS);
  const valueAt = (slider, position) => {
    if (isShort(slider)) return slider.low + position;
    const value = slider.low * (slider.high / slider.low) ** (position / STEPS);
    return slider.whole ? Math.round(value) : Number(value.toPrecision(3));
  };
  const positionOf = (slider, value) =>
    isShort(slider)
      ? Math.round(value - slider.low)
      : Math.round((STEPS * Math.log(Math.max(value, slider.low) / slider.low)) / Math.log(slider.high / slider.low));

  /* Values of a parameter from one end of its slider to the other. */
  function along(slider) {
    const values = Array.from({ length: POINTS + 1 }, (_, k) => {
      const value = slider.low * (slider.high / slider.low) ** (k / POINTS);
      return slider.whole ? Math.round(value) : value;
    });
    return [...new Set(values)];
  }

  function option(spec, parameters, name, average) {
    const theme = style.theme();
    const { axis: common, base, tooltip } = charts.frame(theme);
    const slider = spec.sliders.find((one) => one.name === name);
    const values = along(slider).filter((value) => !bounds.problem({ ...parameters, [name]: value }));
    const here = parameters[name];
    const series = spec.algorithms.map(([algorithm], index) => ({
      type: "line", name: algorithm, symbol: "none", color: style.colour(index),
      data: values
        .filter((value) => !bounds.missing(algorithm, { ...parameters, [name]: value }))
        .map((value) => [value, bounds.bound(algorithm, { ...parameters, [name]: value }, average).logBound / Math.LN10]),
      lineStyle: { width: 2.2, color: style.colour(index), type: style.dash(index).length ? style.dash(index) : "solid" },
      endLabel: { show: true, formatter: algorithm, color: theme.ink, fontSize: 12, distance: 6 },
      labelLayout: { moveOverlap: "shiftY" },
    }));
    const longest = Math.max(...spec.algorithms.map(([algorithm]) => algorithm.length));
    const quiet = { color: theme.muted, width: 1, opacity: 0.7 };
    series.push({
      type: "line", data: [], silent: true,
      markLine: {
        silent: true, symbol: "none", animation: false,
        data: [
          { yAxis: 0, lineStyle: { ...quiet, type: "dashed" }, label: { ...charts.label(theme), formatter: "vacuous above", position: "insideEndBottom" } },
          ...(here > 0 ? [{ xAxis: here, lineStyle: { ...quiet, type: "solid" }, label: { show: false } }] : []),
        ],
      },
    });
    return {
      ...base,
      animation: false,
      grid: { ...base.grid, right: 12 + 6.6 * longest }, // room for the names at the ends of the lines
      tooltip: {
        ...tooltip, trigger: "axis",
        formatter: (points) =>
          [`${slider.symbol} = <b>${style.number(points[0].value[0])}</b>`]
            .concat(points.map(({ marker, seriesName, value }) => `${marker}${seriesName} <b>${style.fromLog(value[1] * Math.LN10)}</b>`))
            .join("<br>"),
      },
      xAxis: { ...charts.xAxis({ label: slider.symbol, log: true }, common), axisLabel: { ...common.axisLabel, formatter: (v) => style.power(Math.log10(v)) } },
      yAxis: { ...common, type: "value", scale: true, minInterval: 1, axisLabel: { ...common.axisLabel, formatter: style.power } },
      series,
    };
  }

  function fill(root, parameters, average) {
    root.querySelectorAll("[data-algorithm]").forEach((row) => {
      const found = bounds.bound(row.dataset.algorithm, parameters, average);
      const show = (selector, log) => {
        const cell = row.querySelector(selector);
        cell.textContent = Number.isNaN(log) ? "–" : style.fromLog(log);
        cell.dataset.log = log;
        return cell;
      };
      const remark = bounds.missing(row.dataset.algorithm, parameters) || (found.vacuous ? "vacuous" : "");
      const cell = show(".bound", found.logBound);
      if (remark) cell.append(Object.assign(document.createElement("small"), { textContent: remark }));
      show(".lambda", found.logLambda);
      show(".t0", found.logT0);
    });
  }

  function start(root, spec) {
    const parameters = Object.fromEntries(spec.sliders.map((slider) => [slider.name, slider.value]));
    const chosen = root.querySelector(".along select");
    const average = root.querySelector(".average input");
    let good = { ...parameters };
    const chart = charts.plot(root.querySelector(".plot"), () => option(spec, good, chosen.value, average.checked));

    function changed() {
      const wrong = bounds.problem(parameters);
      root.querySelector(".problem").textContent = wrong;
      if (wrong) return;
      good = { ...parameters };
      fill(root, good, average.checked);
      chart.redraw();
    }

    const updaters = spec.sliders.map((slider) => {
      const holder = [...root.querySelectorAll(".slider")].find((one) => one.dataset.name === slider.name);
      const [range, number] = holder.querySelectorAll("input");
      range.max = stepsOf(slider);
      const show = () => {
        range.value = positionOf(slider, parameters[slider.name]);
        range.setAttribute("aria-valuetext", style.number(parameters[slider.name]));
        number.value = parameters[slider.name];
      };
      range.addEventListener("input", () => {
        parameters[slider.name] = valueAt(slider, Number(range.value));
        range.setAttribute("aria-valuetext", style.number(parameters[slider.name]));
        number.value = parameters[slider.name];
        changed();
      });
      number.addEventListener("input", () => {
        parameters[slider.name] = number.value === "" ? NaN : Number(number.value);
        range.value = positionOf(slider, parameters[slider.name] || slider.low);
        changed();
      });
      return show;
    });

    const preset = root.querySelector(".preset select");
    if (preset) {
      preset.addEventListener("change", () => {
        const values = preset.value === "" ? {} : spec.presets[Number(preset.value)][1];
        spec.sliders.forEach((slider) => {
          parameters[slider.name] = values[slider.name] ?? slider.value;
        });
        updaters.forEach((show) => show());
        changed();
      });
    }
    chosen.addEventListener("change", () => chart.redraw());
    average.addEventListener("change", changed);
    updaters.forEach((show) => show());
    changed();
  }

  return { start };
})();
