//! Which traces are recorded: the samplers that OpenTelemetry's variables name.

use clap::ValueEnum;

use super::TraceContext;

/// A sampler by its name in `OTEL_TRACES_SAMPLER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Named {
    /// Every trace.
    AlwaysOn,
    /// None.
    AlwaysOff,
    /// A part of them, `OTEL_TRACES_SAMPLER_ARG`.
    #[value(name = "traceidratio")]
    Ratio,
    /// Traces that the caller records, and all that begin here.
    #[value(name = "parentbased_always_on")]
    ParentOrOn,
    /// Traces that the caller records, and none that begin here.
    #[value(name = "parentbased_always_off")]
    ParentOrOff,
    /// Traces that the caller records, and a part of those that begin here.
    #[value(name = "parentbased_traceidratio")]
    ParentOrRatio,
}

impl Named {
    /// True if it records a part of all traces.
    pub(crate) fn has_ratio(self) -> bool {
        match self {
            Self::Ratio | Self::ParentOrRatio => true,
            Self::AlwaysOn | Self::AlwaysOff | Self::ParentOrOn | Self::ParentOrOff => false,
        }
    }
}

/// Decides for each trace whether it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sampler {
    /// Traces are recorded if the low 63 bits of their id are below this number.
    below: u64,
    follows_caller: bool,
}

const ALL: u64 = 1 << 63;

impl Sampler {
    /// The sampler of this name; `ratio` is between 0 and 1.
    pub(crate) fn new(named: Named, ratio: f64) -> Self {
        let part = (ratio.clamp(0.0, 1.0) * ALL as f64) as u64;
        let (below, follows_caller) = match named {
            Named::AlwaysOn => (ALL, false),
            Named::AlwaysOff => (0, false),
            Named::Ratio => (part, false),
            Named::ParentOrOn => (ALL, true),
            Named::ParentOrOff => (0, true),
            Named::ParentOrRatio => (part, true),
        };
        Self {
            below,
            follows_caller,
        }
    }

    /// True if a trace that begins here is recorded. All processes with the same ratio decide the same.
    pub(crate) fn takes(self, trace: [u8; 16]) -> bool {
        // The low 64 bits: the ones above them are cut off.
        let low = u128::from_be_bytes(trace) as u64;
        low >> 1 < self.below
    }

    /// True if our part of a caller's trace is recorded.
    pub(crate) fn takes_from(self, caller: TraceContext) -> bool {
        if self.follows_caller {
            caller.is_sampled
        } else {
            self.takes(caller.trace)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(is_sampled: bool) -> TraceContext {
        TraceContext {
            trace: [0xff; 16],
            span: [1; 8],
            is_sampled,
        }
    }

    #[test]
    fn a_sampler_takes_what_its_name_says() {
        // A trace that begins here, one from a caller that records, one from a caller that does not.
        let check = |named: &str, ratio: f64, expected: [bool; 3]| {
            let sampler = Sampler::new(Named::from_str(named, false).unwrap(), ratio);
            let taken = [
                sampler.takes([0xff; 16]),
                sampler.takes_from(caller(true)),
                sampler.takes_from(caller(false)),
            ];
            assert_eq!(taken, expected, "{named} {ratio}");
        };
        check("always_on", 0.0, [true; 3]);
        check("always_off", 1.0, [false; 3]);
        check("traceidratio", 1.0, [true; 3]);
        check("traceidratio", 0.999, [false; 3]);
        check("parentbased_always_on", 0.0, [true, true, false]);
        check("parentbased_always_off", 1.0, [false, true, false]);
        check("parentbased_traceidratio", 0.0, [false, true, false]);
        check("parentbased_traceidratio", 1.0, [true, true, false]);
    }

    #[test]
    fn a_ratio_is_about_the_part_that_it_says() {
        let sampler = Sampler::new(Named::Ratio, 0.25);
        let trace = |lead: u8| {
            let mut trace = [0; 16];
            trace[8] = lead;
            trace
        };
        let taken = (0..=255).filter(|lead| sampler.takes(trace(*lead))).count();
        assert_eq!(taken, 64);
    }
}
