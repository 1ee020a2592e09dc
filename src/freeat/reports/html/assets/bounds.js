/* The bounds of Theorems 2 (Vanilla), 5 (Fast) and 4 (Free) in logarithms, as freeat.theory computes them. */
window.freeat = window.freeat || {};

freeat.bounds = (() => {
  "use strict";

  const LEAST = 1e-60;
  const MOST = 1e60;
  const POSITIVE = ["beta", "c", "L", "L_w", "psi"];
  const NOT_NEGATIVE = ["eps", "alpha"];
  const WHOLE = ["m", "b", "n", "T"];

  /* log(1 + e^x) */
  const softplus = (x) => (x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)));

  /* log ν and ξ with which an algorithm enters Lemma 3; ν is the theorem's λ. */
  function recursion(algorithm, p) {
    const base = Math.log(p.beta * p.c);
    const gain = p.alpha * p.eps * p.psi * p.beta;
    if (algorithm === "vanilla") {
      return { logNu: base, xi: 2 * p.eps * p.n + (2 * p.L) / p.beta };
    }
    if (algorithm === "fast") {
      return { logNu: base + Math.log1p(gain), xi: (2 * p.L) / (p.beta * (1 + gain)) };
    }
    const growth = (p.beta * p.c) / p.m + gain;
    return { logNu: base + (p.m - 1) * Math.log1p(growth), xi: (2 * p.L) / p.beta };
  }

  /* Lemma 3's bound b/n (1 + 1/ν) t₀ with the minimizing t₀; Free counts T/m batches. */
  function bound(algorithm, p) {
    const { logNu, xi } = recursion(algorithm, p);
    const steps = algorithm === "free" ? p.T / p.m : p.T;
    const logPull = Math.log((p.L_w * xi) / p.b) + logNu;
    // 1/(ν+1) and ν/(ν+1) from log ν, so that a ν beyond every number gives 0 and 1
    const share = Math.exp(-softplus(logNu));
    const rest = Math.exp(-softplus(-logNu));
    const logT0 = share * logPull + rest * Math.log(steps);
    const logBound = Math.log(p.b / p.n) + softplus(-logNu) + logT0;
    return { logLambda: logNu, logBound, logT0, steps, vacuous: logBound > 0 };
  }

  /* The first rule that the parameters break, as a sentence; empty where none. */
  function problem(p) {
    for (const name of POSITIVE) {
      if (!(p[name] >= LEAST && p[name] <= MOST)) return `${name} must be positive`;
    }
    for (const name of NOT_NEGATIVE) {
      if (!(p[name] === 0 || (p[name] >= LEAST && p[name] <= MOST))) return `${name} must not be negative`;
    }
    for (const name of WHOLE) {
      if (!(p[name] >= 1 && p[name] <= MOST && Number.isInteger(p[name]))) {
        return `${name} must be a whole number from 1 on`;
      }
    }
    return p.b > p.n ? `b = ${p.b} exceeds n = ${p.n}: a batch is a subset` : "";
  }

  return { bound, problem };
})();
