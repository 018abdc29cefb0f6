//! What was measured, and how it is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::profile::ByCause;

/// What the client is called that makes the same writes as an admin.
pub(crate) const BARE: &str = "bare client";

/// What the client is called that makes them with the permissions of the controller.
pub(crate) const RESTRICTED: &str = "restricted client";

/// A number for each program: those of the platform, the API server and etcd.
pub(crate) type ByProgram = BTreeMap<String, f64>;

/// What was measured between two moments.
pub(crate) struct Span {
    pub(crate) seconds: f64,
    pub(crate) counts: Counts,
    /// Seconds of processor time.
    pub(crate) cpu: ByProgram,
}

/// Requests of the platform's programs. Leases are not counted; watches count as requests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) requests: usize,
    /// Without those of events.
    pub(crate) writes: usize,
    /// Writes of events.
    pub(crate) events: usize,
    /// The most requests within ten seconds.
    pub(crate) busiest: usize,
}

/// A phase of a client that only makes the writes.
#[derive(Debug, PartialEq)]
pub(crate) struct Bare {
    pub(crate) writes: usize,
    pub(crate) seconds: f64,
    /// Processor time of the API server and etcd meanwhile, in seconds.
    pub(crate) cpu: ByProgram,
}

impl Bare {
    /// What `to` releases would have taken, if this was measured with `from`.
    pub(crate) fn scaled(self, from: usize, to: usize) -> Self {
        if from == to {
            return self;
        }
        let factor = to as f64 / from as f64;
        Self {
            writes: self.writes * to / from,
            seconds: self.seconds * factor,
            cpu: self
                .cpu
                .into_iter()
                .map(|(program, seconds)| (program, seconds * factor))
                .collect(),
        }
    }
}

/// Something that is done to all compositions.
pub(crate) struct Phase {
    pub(crate) what: &'static str,
    pub(crate) platform: Span,
    /// None if no client would write for it.
    pub(crate) bare: Option<Bare>,
    /// The same writes with the permissions of the controller, if that was measured.
    pub(crate) restricted: Option<Bare>,
}

/// Requests while nothing is done.
pub(crate) struct Rest {
    pub(crate) what: &'static str,
    pub(crate) span: Span,
    pub(crate) lasted: Duration,
}

/// What the API server spent its time on in a phase, and in the seconds until the last profile ended.
pub(crate) struct Profiled {
    pub(crate) phase: String,
    pub(crate) compositions: usize,
    pub(crate) times: ByCause,
}

impl Profiled {
    /// Milliseconds for each composition.
    fn each(&self, seconds: f64) -> f64 {
        seconds * 1000.0 / self.compositions as f64
    }
}

/// All that is printed.
pub(crate) struct Figures {
    pub(crate) count: usize,
    pub(crate) namespaces: u32,
    /// In their order; the first is the install.
    pub(crate) phases: Vec<Phase>,
    pub(crate) rests: Vec<Rest>,
    /// PSS in MiB at these moments: shared pages count once.
    pub(crate) memory: Vec<(&'static str, ByProgram)>,
    /// What the API server spent its time on in each phase; empty if it was not profiled.
    pub(crate) profiles: Vec<Profiled>,
}

impl Figures {
    /// Prints tables, and the most important figures as the last line.
    pub(crate) fn print(&self) {
        let (count, namespaces) = (self.count, self.namespaces);
        println!("{count} compositions in {namespaces} namespaces\n");
        println!(
            "| phase | seconds | {BARE} | ratio | {RESTRICTED} | ratio | requests each | writes each | events each | \
             bare writes each |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|");
        for phase in &self.phases {
            println!("{}", self.row(phase));
        }
        println!("\n| at rest, a minute | requests | writes | events | busiest ten seconds |");
        println!("|---|---|---|---|---|");
        for rest in &self.rests {
            println!("{}", rest.row());
        }
        let mut times = Vec::new();
        for phase in &self.phases {
            times.push((phase.what.to_owned(), &phase.platform.cpu));
            for (title, client) in [(BARE, &phase.bare), (RESTRICTED, &phase.restricted)] {
                if let Some(client) = client {
                    times.push((format!("{}, {title}", phase.what), &client.cpu));
                }
            }
        }
        let rests = self.rests.iter();
        times.extend(rests.map(|rest| (rest.what.to_owned(), &rest.span.cpu)));
        print_by_program("CPU seconds", &times);
        let memory = self.memory.iter();
        let memory: Vec<_> = memory
            .map(|(when, memory)| ((*when).to_owned(), memory))
            .collect();
        print_by_program("PSS in MiB", &memory);
        if !self.profiles.is_empty() {
            println!();
            self.profile_rows().iter().for_each(|row| println!("{row}"));
        }
        if let Some(install) = self.phases.first() {
            println!("\n{}", self.summary(install));
        }
    }

    /// A table of the API server's time for each composition.
    fn profile_rows(&self) -> Vec<String> {
        let row = |name: &str, seconds: &dyn Fn(&ByCause) -> f64| {
            let cells = self.profiles.iter();
            let cells = cells.map(|profiled| format!("{:.1}", profiled.each(seconds(&profiled.times))));
            cells_of(std::iter::once(name.to_owned()).chain(cells))
        };
        let head = "API server, ms for each composition".to_owned();
        let phases = self.profiles.iter().map(|profiled| profiled.phase.clone());
        let mut rows = vec![
            cells_of(std::iter::once(head).chain(phases)),
            format!("|{}", "---|".repeat(self.profiles.len() + 1)),
            row("all", &ByCause::total),
        ];
        rows.extend(ByCause::causes().map(|cause| row(cause, &|times| times.seconds(cause))));
        rows
    }

    fn row(&self, phase: &Phase) -> String {
        let Phase {
            what,
            platform,
            bare,
            restricted,
        } = phase;
        let counts = &platform.counts;
        let beside = |client: &Option<Bare>| match client {
            Some(client) => format!("{:.1} | {:.2}", client.seconds, platform.seconds / client.seconds),
            None => " | ".to_owned(),
        };
        let writes = match bare {
            Some(bare) => format!("{:.1}", self.each(bare.writes)),
            None => String::new(),
        };
        format!(
            "| {what} | {:.1} | {} | {} | {:.1} | {:.1} | {:.1} | {writes} |",
            platform.seconds,
            beside(bare),
            beside(restricted),
            self.each(counts.requests),
            self.each(counts.writes),
            self.each(counts.events),
        )
    }

    fn summary(&self, install: &Phase) -> String {
        let span = &install.platform;
        let ratio = match &install.bare {
            Some(bare) => format!("{:.2} times the bare client", span.seconds / bare.seconds),
            None => "without a bare client".to_owned(),
        };
        format!(
            "{} compositions in {} namespaces: Ready in {:.1} s ({ratio}), {:.1} requests and {:.1} writes each, of \
             which {:.1} events",
            self.count,
            self.namespaces,
            span.seconds,
            self.each(span.counts.requests),
            self.each(span.counts.writes + span.counts.events),
            self.each(span.counts.events),
        )
    }

    fn each(&self, number: usize) -> f64 {
        number as f64 / self.count as f64
    }
}

impl Rest {
    fn row(&self) -> String {
        let minutes = self.lasted.as_secs_f64() / 60.0;
        let a_minute = |number: usize| number as f64 / minutes;
        let counts = &self.span.counts;
        format!(
            "| {} | {:.1} | {:.1} | {:.1} | {} |",
            self.what,
            a_minute(counts.requests),
            a_minute(counts.writes),
            a_minute(counts.events),
            counts.busiest,
        )
    }
}

/// Prints a table with a column for each program.
fn print_by_program(what: &str, rows: &[(String, &ByProgram)]) {
    let programs: BTreeSet<&String> = rows.iter().flat_map(|(_, figures)| figures.keys()).collect();
    println!();
    let head = std::iter::once(what.to_owned()).chain(programs.iter().map(|program| (*program).clone()));
    println!("{}", cells_of(head));
    println!("|{}", "---|".repeat(programs.len() + 1));
    for (name, figures) in rows {
        let row = programs.iter().map(|program| match figures.get(*program) {
            Some(figure) => format!("{figure:.1}"),
            None => String::new(),
        });
        println!("{}", cells_of(std::iter::once(name.clone()).chain(row)));
    }
}

/// A row of a table.
fn cells_of(texts: impl Iterator<Item = String>) -> String {
    format!("| {} |", texts.collect::<Vec<_>>().join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(seconds: f64) -> Span {
        Span {
            seconds,
            counts: Counts {
                requests: 40,
                writes: 20,
                events: 2,
                busiest: 30,
            },
            cpu: ByProgram::new(),
        }
    }

    fn figures() -> Figures {
        Figures {
            count: 2,
            namespaces: 1,
            phases: Vec::new(),
            rests: Vec::new(),
            memory: Vec::new(),
            profiles: Vec::new(),
        }
    }

    #[test]
    fn a_phase_stands_beside_the_bare_clients() {
        let bare = |seconds| Bare {
            writes: 24,
            seconds,
            cpu: ByProgram::new(),
        };
        let mut phase = Phase {
            what: "install",
            platform: span(3.0),
            bare: Some(bare(2.0)),
            restricted: Some(bare(2.5)),
        };
        assert_eq!(
            figures().row(&phase),
            "| install | 3.0 | 2.0 | 1.50 | 2.5 | 1.20 | 20.0 | 10.0 | 1.0 | 12.0 |"
        );
        assert_eq!(
            figures().summary(&phase),
            "2 compositions in 1 namespaces: Ready in 3.0 s (1.50 times the bare client), 20.0 requests and 11.0 \
             writes each, of which 1.0 events"
        );
        phase.bare = None;
        phase.restricted = None;
        assert_eq!(
            figures().row(&phase),
            "| install | 3.0 |  |  |  |  | 20.0 | 10.0 | 1.0 |  |"
        );
    }

    #[test]
    fn a_bare_client_with_fewer_releases_is_scaled() {
        let bare = |writes, seconds, cpu| Bare {
            writes,
            seconds,
            cpu: ByProgram::from([("etcd".to_owned(), cpu)]),
        };
        assert_eq!(bare(24, 2.0, 1.0).scaled(2, 6), bare(72, 6.0, 3.0));
    }

    #[test]
    fn a_rest_is_told_a_minute() {
        let rest = Rest {
            what: "idle",
            span: span(120.0),
            lasted: Duration::from_mins(2),
        };
        assert_eq!(rest.row(), "| idle | 20.0 | 10.0 | 1.0 | 30 |");
    }
}
