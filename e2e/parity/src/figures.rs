//! How many cases ended in which way, and how much time and memory they took.

use std::time::Duration;

use crate::{compare::Verdict, run::Cost};

#[derive(Debug, Default)]
pub(crate) struct Figures {
    equal: usize,
    equal_where_stable: usize,
    both_refuse: usize,
    both_refuse_in_other_words: usize,
    different: usize,
    only_helm_refuses: usize,
    only_kco_refuses: usize,
    not_run: usize,
    /// The cases that generate no keys.
    plain: Costs,
    /// The cases that generate keys or certificates, which spend their time looking for primes.
    with_keys: Costs,
}

/// What some cases cost with both programs.
#[derive(Debug, Default)]
struct Costs {
    cases: usize,
    helm: Cost,
    kco: Cost,
    /// How many times as much time of processors Helm took, for each case.
    ratios: Vec<f64>,
}

impl Figures {
    pub(crate) fn count(&mut self, verdict: &Verdict) {
        let counter = match verdict {
            Verdict::Equal => &mut self.equal,
            Verdict::EqualWhereStable => &mut self.equal_where_stable,
            Verdict::BothRefuse { same: true, .. } => &mut self.both_refuse,
            Verdict::BothRefuse { same: false, .. } => &mut self.both_refuse_in_other_words,
            Verdict::Different(_) => &mut self.different,
            Verdict::OnlyHelmRefuses(_) => &mut self.only_helm_refuses,
            Verdict::OnlyKcoRefuses(_) => &mut self.only_kco_refuses,
            Verdict::NotRun(_) => &mut self.not_run,
        };
        *counter += 1;
    }

    /// Adds the cost of a case with both programs.
    pub(crate) fn measure(&mut self, helm: Cost, kco: Cost, makes_keys: bool) {
        let costs = if makes_keys {
            &mut self.with_keys
        } else {
            &mut self.plain
        };
        costs.cases += 1;
        costs.helm += helm;
        costs.kco += kco;
        costs
            .ratios
            .push(seconds(helm.processor) / seconds(kco.processor).max(f64::MIN_POSITIVE));
    }

    /// True if there is nothing to investigate; different words in a refusal do not count as a difference.
    pub(crate) fn is_clean(&self) -> bool {
        self.different + self.only_helm_refuses + self.only_kco_refuses + self.not_run == 0
    }

    /// All figures: results of the cases, then their cost, with those that generate keys listed separately.
    pub(crate) fn summary(&self) -> String {
        let Self {
            equal,
            equal_where_stable,
            both_refuse,
            both_refuse_in_other_words,
            different,
            only_helm_refuses,
            only_kco_refuses,
            not_run,
            plain,
            with_keys,
        } = self;
        let all = equal
            + equal_where_stable
            + both_refuse
            + both_refuse_in_other_words
            + different
            + only_helm_refuses
            + only_kco_refuses
            + not_run;
        format!(
            "{all} cases: {equal} equal, {equal_where_stable} equal where helm agrees with itself, {both_refuse} both refuse, \
             {both_refuse_in_other_words} both refuse in other words, {different} different, {only_helm_refuses} only helm \
             refuses, {only_kco_refuses} only kco refuses, {not_run} not run\n\
             without keys: {}\n\
             with keys or certificates: {}",
            plain.summary(),
            with_keys.summary()
        )
    }
}

impl Costs {
    fn summary(&self) -> String {
        let Self {
            cases,
            helm,
            kco,
            ratios,
        } = self;
        if *cases == 0 {
            return "nothing measured".to_owned();
        }
        format!(
            "{cases} cases; {}; {}, in the median 1/{:.1}; {}",
            ratio("time", "s", seconds(helm.time), seconds(kco.time)),
            ratio(
                "of processors",
                "s",
                seconds(helm.processor),
                seconds(kco.processor)
            ),
            median(ratios),
            ratio(
                "peak memory",
                "MiB a case",
                mebibytes(helm.memory, *cases),
                mebibytes(kco.memory, *cases)
            )
        )
    }
}

fn ratio(what: &str, unit: &str, helm: f64, kco: f64) -> String {
    format!(
        "{what}: helm {helm:.1} {unit}, kco {kco:.1}, 1/{:.1}",
        helm / kco.max(f64::MIN_POSITIVE)
    )
}

fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// The one in the middle; 0 of none.
fn median(ratios: &[f64]) -> f64 {
    let mut sorted = ratios.to_owned();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The mean in MiB.
fn mebibytes(sum: u64, cases: usize) -> f64 {
    sum as f64 / cases as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cases_took_is_shown_as_a_ratio_keys_apart() {
        let cost = |milliseconds, mebibytes: u64| Cost {
            time: Duration::from_millis(milliseconds),
            processor: Duration::from_millis(2 * milliseconds),
            memory: mebibytes << 20,
        };
        let mut figures = Figures::default();
        figures.measure(cost(1000, 60), cost(100, 10), false);
        figures.measure(cost(500, 40), cost(50, 10), false);
        let summary = figures.summary();
        let last: Vec<&str> = summary.lines().skip(1).collect();
        assert_eq!(
            last,
            [
                "without keys: 2 cases; time: helm 1.5 s, kco 0.1, 1/10.0; of processors: helm 3.0 s, kco 0.3, 1/10.0, in the \
                 median 1/10.0; \
                 peak memory: helm 50.0 MiB a case, kco 10.0, 1/5.0",
                "with keys or certificates: nothing measured"
            ]
        );
    }
}
