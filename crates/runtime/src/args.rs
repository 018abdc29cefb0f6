//! Turns command line and environment into a program's `Args`: a flag beats the environment, which beats the default.
//!
//! Go programs do three things that `clap` does not, and they are done here so that existing manifests keep working:
//! flags may have one dash (`-group`), booleans may have a value (`--debug=false`), and an empty variable counts as not
//! set (`ConfigMaps` are full of those).

mod reference;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory, FromArgMatches};

pub use reference::reference;

/// Reads the process's arguments and environment.
///
/// If they cannot be read, explains why on standard error and exits with a status other than 0; answers `--help` and
/// exits with 0.
pub fn parse<A: CommandFactory + FromArgMatches>() -> A {
    match parse_from(std::env::args_os()) {
        Ok(args) => args,
        Err(error) => error.exit(),
    }
}

/// Reads these arguments (program name first) and the process's environment.
///
/// # Errors
///
/// The error of `clap`.
pub fn parse_from<A: CommandFactory + FromArgMatches>(
    args: impl IntoIterator<Item = OsString>,
) -> Result<A, clap::Error> {
    let mut command = A::command().mut_args(|arg| without_empty_variable(arg, |name| std::env::var_os(name)));
    let matches = command.try_get_matches_from_mut(args.into_iter().map(two_dashes))?;
    A::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// A boolean as Go reads it (`strconv.ParseBool`).
///
/// Use it with `#[arg(long, env = "…", value_parser = boolean, num_args = 0..=1, require_equals = true,
/// default_value = "false", default_missing_value = "true")]`, so that the bare flag means true.
///
/// # Errors
///
/// If the text is none of these spellings.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("write true or false".to_owned()),
    }
}

/// Selects the API server; flattened into a program's `Args`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ClientArgs {
    /// Kubeconfig to use instead of the pod's service account
    #[arg(long, env = "KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

/// How charts are fetched; flattened into a program's `Args`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ChartArgs {
    /// Docker configuration with the logins for registries of which a definition says nothing: a file, or a folder
    /// with config.json or .dockerconfigjson
    #[arg(long, env = "HELM_REGISTRY_CONFIG_PATH", value_name = "PATH")]
    pub helm_registry_config_path: Option<PathBuf>,
}

/// An error of a program's own checks of its arguments, in `clap`'s format.
pub fn refuse<A: CommandFactory>(message: impl std::fmt::Display) -> clap::Error {
    A::command().error(ErrorKind::ValueValidation, message)
}

/// Detaches an argument from its environment variable if that is empty.
fn without_empty_variable(arg: Arg, read: impl Fn(&OsStr) -> Option<OsString>) -> Arg {
    let is_empty = arg.get_env().and_then(read).is_some_and(|value| value.is_empty());
    if is_empty {
        arg.env(None::<&'static str>)
    } else {
        arg
    }
}

/// `-group` to `--group`; single letters, numbers and everything that is not a flag stay.
fn two_dashes(arg: OsString) -> OsString {
    let name = arg.to_str().and_then(|text| text.strip_prefix('-'));
    match name.map(str::as_bytes) {
        Some([first, second, ..]) if first.is_ascii_alphabetic() && *second != b'=' => {
            let mut doubled = OsString::from("-");
            doubled.push(&arg);
            doubled
        }
        _ => arg,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GoDuration;

    #[derive(Debug, clap::Parser)]
    struct Args {
        #[arg(long, env = "RUNTIME_ARGS_TEST_GROUP", default_value = "")]
        group: String,
        #[arg(long = "urlChartInspector", default_value = "http://here")]
        url_chart_inspector: String,
        #[arg(long, default_value = "3m")]
        poll: GoDuration,
        #[arg(long, default_value = "5")]
        workers: u16,
        // A variable that every process has.
        #[arg(long, env = "PATH", default_value = "default")]
        path: String,
        #[arg(long, value_parser = boolean, num_args = 0..=1, require_equals = true,
              default_value = "false", default_missing_value = "true")]
        debug: bool,
        #[command(flatten)]
        client: ClientArgs,
    }

    fn read(args: &[&str]) -> Result<Args, clap::Error> {
        parse_from(["program"].iter().chain(args).map(OsString::from))
    }

    #[test]
    fn flags_are_read_as_go_reads_them() {
        let args = read(&[
            "-group",
            "a.b",
            "-urlChartInspector=http://there",
            "--poll",
            "1h30m",
            "-debug=false",
        ])
        .unwrap();
        assert_eq!(
            (args.group.as_str(), args.url_chart_inspector.as_str()),
            ("a.b", "http://there")
        );
        assert_eq!((args.poll.to_string().as_str(), args.debug), ("1h30m0s", false));
        for bare in ["-debug", "--debug", "--debug=1"] {
            assert!(read(&[bare]).unwrap().debug, "{bare}");
        }
        assert_eq!(
            read(&["-kubeconfig", "/a"]).unwrap().client.kubeconfig,
            Some(PathBuf::from("/a"))
        );
    }

    #[test]
    fn flag_beats_environment_beats_default() {
        assert_eq!(read(&[]).unwrap().path, std::env::var("PATH").unwrap());
        assert_eq!(read(&["--path", "flag"]).unwrap().path, "flag");
        assert_eq!(read(&[]).unwrap().group, "");
    }

    #[test]
    fn a_variable_that_is_set_to_nothing_is_not_set() {
        let tied = |value: Option<&str>| {
            let arg = Arg::new("poll").env("POLL");
            without_empty_variable(arg, |_| value.map(OsString::from))
                .get_env()
                .is_some()
        };
        assert_eq!([Some("3m"), Some(""), None].map(tied), [true, false, true]);
    }

    #[test]
    fn an_invalid_value_names_its_flag() {
        for (args, named) in [
            (&["--poll", "soon"][..], "--poll"),
            (&["--debug=perhaps"], "--debug"),
            (&["--workers=-1"], "--workers"),
            (&["-nonsense"], "--nonsense"),
        ] {
            let error = read(args).unwrap_err();
            assert!(
                error.exit_code() != 0 && error.to_string().contains(named),
                "{error}"
            );
        }
        assert!(
            refuse::<Args>("--poll must be shorter")
                .to_string()
                .contains("--poll must be shorter")
        );
    }
}
