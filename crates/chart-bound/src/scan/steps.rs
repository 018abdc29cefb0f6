//! Limits how long a walk may take: a chart with hostile templates is cut off and reported as unresolved.

/// Steps for one file: a fraction of a second. No chart of the large public collections takes 300 000 for all its
/// files together.
const FILE_STEPS: usize = 500_000;

/// Steps for all files of a chart.
const CHART_STEPS: usize = 2_000_000;

/// Where a walk was cut off, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// The line of the file that was executed.
    pub(super) line: usize,
    /// The limit that was reached.
    pub(super) why: &'static str,
}

/// Counts the steps of a walk: about one for each template node on each path through it.
#[derive(Debug)]
pub(super) struct Steps {
    of_file: usize,
    of_chart: usize,
    cut: Option<Cut>,
}

impl Default for Steps {
    fn default() -> Self {
        Self {
            of_file: FILE_STEPS,
            of_chart: CHART_STEPS,
            cut: None,
        }
    }
}

impl Steps {
    pub(super) fn begin_file(&mut self) {
        self.of_file = FILE_STEPS.min(self.of_chart);
        self.cut = None;
    }

    pub(super) fn spend(&mut self, steps: usize) {
        self.of_file = self.of_file.saturating_sub(steps);
        self.of_chart = self.of_chart.saturating_sub(steps);
    }

    /// False when the steps for this file or for the chart are used up. `line` is where the walk is.
    pub(super) fn go_on(&mut self, line: usize) -> bool {
        if self.cut.is_none() && self.of_file == 0 {
            let why = if self.of_chart == 0 {
                "the chart's templates take more steps than the scan follows"
            } else {
                "the template takes more steps than the scan follows"
            };
            self.cut = Some(Cut { line, why });
        }
        self.cut.is_none()
    }

    /// Cuts the walk off because templates are nested too deeply.
    pub(super) fn cut_for_depth(&mut self, line: usize) {
        self.cut.get_or_insert(Cut {
            line,
            why: "templates are nested more deeply than the scan follows",
        });
    }

    pub(super) fn cut(&self) -> Option<Cut> {
        self.cut
    }
}
