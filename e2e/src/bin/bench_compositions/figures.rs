//! What was measured, and how it is printed.

use std::time::Duration;

/// What was measured between two moments.
pub(crate) struct Span {
    pub(crate) seconds: f64,
    pub(crate) requests: usize,
    pub(crate) writes: usize,
    pub(crate) cpu_seconds: f64,
    /// The API server's, for serving them.
    pub(crate) server_cpu_seconds: f64,
}

/// All that is printed.
pub(crate) struct Figures {
    /// Writes and seconds of the bare client.
    pub(crate) bare: (usize, f64),
    pub(crate) empty: Memory,
    pub(crate) install: Span,
    pub(crate) full: Memory,
    pub(crate) at_rest: Span,
    pub(crate) change: Span,
    pub(crate) bump: Span,
    /// From new pods of the platform to the first change that they handled.
    pub(crate) restart: Span,
    /// Requests of the new pods after that.
    pub(crate) after_restart: Span,
    pub(crate) delete: Span,
}

/// Memory of the platform in MiB: all processes together, where shared pages count once (PSS).
pub(crate) struct Memory {
    pub(crate) all: f64,
    pub(crate) controller: f64,
    pub(crate) server: f64,
}

impl Figures {
    /// Prints a table, and the most important figures as the last line.
    pub(crate) fn print(&self, count: usize, namespaces: u32, idle: Duration) {
        let Self {
            bare: (writes, bare),
            empty,
            install,
            full,
            ..
        } = self;
        let each = |number: usize| number as f64 / count as f64;
        println!("| figure, {count} compositions in {namespaces} namespaces | measured |");
        println!("|---|---|");
        println!("| bare client, {writes} writes | {bare:.1} s |");
        println!("| applied to all Ready | {:.1} s |", install.seconds);
        println!(
            "| requests / writes for each | {:.1} / {:.1} |",
            each(install.requests),
            each(install.writes)
        );
        println!(
            "| CPU seconds of the platform / of the API server | {:.2} / {:.2} |",
            install.cpu_seconds, install.server_cpu_seconds
        );
        Self::print_rest("idle", &self.at_rest, idle);
        println!("| one value changed in all | {:.1} s |", self.change.seconds);
        println!("| chart version changed for all | {:.1} s |", self.bump.seconds);
        println!(
            "| all pods ended: until a change is served | {:.1} s |",
            self.restart.seconds
        );
        Self::print_rest("after that", &self.after_restart, idle);
        println!(
            "| all deleted, until they are gone | {:.1} s |",
            self.delete.seconds
        );
        println!(
            "| PSS of the platform, empty / with all | {:.0} / {:.0} MiB |",
            empty.all, full.all
        );
        println!(
            "| of which controllers | {:.0} / {:.0} MiB |",
            empty.controller, full.controller
        );
        println!(
            "| PSS of the API server | {:.0} / {:.0} MiB |",
            empty.server, full.server
        );
        println!(
            "{count} compositions in {namespaces} namespaces: Ready in {:.1} s ({:.2} times the bare client), {:.1} requests and \
             {:.1} writes each, {:.2} CPU s",
            install.seconds,
            install.seconds / bare,
            each(install.requests),
            each(install.writes),
            install.cpu_seconds
        );
    }

    fn print_rest(when: &str, span: &Span, lasted: Duration) {
        let minutes = lasted.as_secs_f64() / 60.0;
        println!(
            "| {when}, a minute: requests / writes | {:.1} / {:.1} |",
            span.requests as f64 / minutes,
            span.writes as f64 / minutes
        );
    }
}
