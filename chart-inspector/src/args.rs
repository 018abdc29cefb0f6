//! Command line arguments and environment variables. Where Krateo's chart-inspector has the same setting, the name is
//! the same.

use clap::Parser;
use runtime::PushArgs;
use runtime::args::{ChartArgs, ClientArgs, boolean};

/// Answers which objects a composition's chart would touch. It changes nothing.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) client: ClientArgs,
    #[command(flatten)]
    pub(crate) charts: ChartArgs,
    #[command(flatten)]
    pub(crate) push: PushArgs,
    /// Log more.
    #[arg(
        long,
        env = "DEBUG",
        value_parser = boolean,
        num_args = 0..=1,
        require_equals = true,
        default_value = "false",
        default_missing_value = "true"
    )]
    pub(crate) debug: bool,
    /// Answer only callers with a token of audience `chart-inspector` whose owner may read the composition. Turn it off
    /// for programs that send no tokens.
    #[arg(
        long,
        env = "CHART_INSPECTOR_AUTHENTICATE",
        value_parser = boolean,
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true"
    )]
    pub(crate) authenticate: bool,
    /// Port to answer on.
    #[arg(long, env = "PLUGIN_PORT", default_value_t = 8081, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Namespace of the platform, which charts see as `global.krateoNamespace`.
    #[arg(long, env = "KRATEO_NAMESPACE", default_value = "krateo-system")]
    pub(crate) krateo_namespace: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_is_generated_from_the_arguments() {
        let page = runtime::args::reference::<Args>("chart-inspector");
        expect_test::expect_file!["../../docs/reference/chart-inspector.md"].assert_eq(&page);
    }
}
