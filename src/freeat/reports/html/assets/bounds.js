/* The bounds of Theorems 2 (Vanilla), 5 (Fast) and 4 (Free), and those derived beside them, in logarithms, as
   freeat.theory computes them. η = 2βε and ℓ = β, the defaults for a β-smooth loss. */
window.freeat = window.freeat || {};

freeat.bounds = (() => {
  "use strict";

  const LEAST = 1e-60;
  const MOST = 1e60;
  const POSITIVE = ["beta", "c", "L", "L_w", "psi", "step", "rho"];
  const NOT_NEGATIVE = ["eps", "alpha", "decay"];
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
    if (algorithm === "approximate") {
      return { logNu: base, xi: 2 * p.eps * p.n + (2 * p.L_w) / p.beta };
    }
    if (algorithm === "proximal") {
      return { logNu: base - Math.log1p(-p.beta / p.rho), xi: (2 * p.L_w) / p.beta };
    }
    if (algorithm === "fast") {
      return { logNu: base + Math.log1p(gain), xi: (2 * p.L) / (p.beta * (1 + gain)) };
    }
    const growth = (p.beta * p.c) / p.m + gain;
    return { logNu: base + (p.m - 1) * Math.log1p(growth), xi: (2 * p.L) / p.beta };
  }

  /* What a bound needs beyond the rules for all parameters, as a sentence; empty where it exists. */
  function missing(algorithm, p) {
    if (algorithm === "convex" && p.step * (p.beta + p.decay) > 1 + 1e-12) return "needs α_w ≤ 1/(β + γ)";
    if (algorithm === "proximal" && p.beta >= p.rho) return "needs ρ > β";
    return "";
  }

  /* Σ (1 − gap)^t over t < terms; at most (terms + 1)/2 in a mean over the updates. */
  function geometricSum(gap, terms, average) {
    const sum = gap === 0 ? terms : gap >= 1 ? 1 / gap : -Math.expm1(terms * Math.log1p(-gap)) / gap;
    return average ? Math.min(sum, (terms + 1) / 2) : sum;
  }

  /* SGD with the constant step α_w and weight decay γ on a convex loss: no λ, no t₀, no bounded loss. */
  function convex(p, average) {
    const met = Math.min(1, (p.b * p.T) / p.n);
    const kept = p.step * p.decay;
    const drift = Math.sqrt(2 * geometricSum(kept * (2 - kept), p.T, average));
    const own = (2 * p.L_w ** 2 * p.step * geometricSum(kept, p.T, average)) / p.n;
    const logBound = Math.log(p.L_w * met * 2 * p.beta * p.eps * p.step * drift + own);
    return { logLambda: NaN, logBound, logT0: NaN, steps: p.T, vacuous: false };
  }

  /* Lemma 3's bound b/n (1 + 1/ν) t₀ with the minimizing t₀; Free counts T/m batches. With `average` it is for the
     mean of the weights after every update: ξ is multiplied by κ = min(1, (1 + 1/steps)^(ν+1)/(ν + 1)). */
  function bound(algorithm, p, average) {
    if (missing(algorithm, p)) return { logLambda: NaN, logBound: NaN, logT0: NaN, steps: NaN, vacuous: false };
    if (algorithm === "convex") return convex(p, average);
    const { logNu, xi } = recursion(algorithm, p);
    const steps = algorithm === "free" ? p.T / p.m : p.T;
    const logKappa = average ? Math.min(0, (Math.exp(logNu) + 1) * Math.log1p(1 / steps) - softplus(logNu)) : 0;
    const logPull = Math.log((p.L_w * xi) / p.b) + logKappa + logNu;
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

  return { bound, missing, problem };
})();
