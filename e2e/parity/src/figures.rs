//! How many cases ended how.

use crate::compare::Verdict;

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

    /// True when nothing is left to look into; other words in a refusal are no difference in what is rendered.
    pub(crate) fn is_clean(&self) -> bool {
        self.different + self.only_helm_refuses + self.only_kco_refuses + self.not_run == 0
    }

    /// All figures in one line.
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
             refuses, {only_kco_refuses} only kco refuses, {not_run} not run"
        )
    }
}
