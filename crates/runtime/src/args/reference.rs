//! A program's arguments as a page of `docs/reference`.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::{Arg, CommandFactory};

/// The page about the arguments of `program`, in Markdown: each flag with its environment variable, its default and its
/// meaning, in the order of `--help`. A test of each program compares the page in `docs/reference` with this.
pub fn reference<A: CommandFactory>(program: &str) -> String {
    let command = A::command();
    let about = command.get_about().map(StyledStr::to_string).unwrap_or_default();
    let mut page = format!(
        "# Arguments of {program}\n\n{about}\n\nA flag beats the environment variable beside it, and that beats the default. A \
         variable that is set to nothing counts as not set. Generated from the code by `make reference`.\n\n\
         | variable | flag | default | meaning |\n|---|---|---|---|\n"
    );
    for arg in command.get_arguments() {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            arg.get_env()
                .map(|name| code(&name.to_string_lossy()))
                .unwrap_or_default(),
            flags(arg),
            default(arg),
            meaning(arg)
        );
    }
    page
}

fn flags(arg: &Arg) -> String {
    let short = arg.get_short().map(|short| code(&format!("-{short}")));
    let long = arg.get_long().map(|long| code(&format!("--{long}")));
    short.into_iter().chain(long).collect::<Vec<_>>().join(" ")
}

fn default(arg: &Arg) -> String {
    let values: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .filter(|value| !value.is_empty())
        .map(|value| code(&value))
        .collect();
    values.join(" ")
}

fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(StyledStr::to_string);
    let mut meaning = help
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    // The two values of a boolean need no mention.
    let choices: Vec<_> = arg
        .get_possible_values()
        .iter()
        .map(|value| code(value.get_name()))
        .filter(|value| value != "`true`" && value != "`false`")
        .collect();
    if !choices.is_empty() {
        if !meaning.ends_with('.') {
            meaning.push('.');
        }
        let _ = write!(meaning, " One of {}.", choices.join(", "));
    }
    meaning.replace('|', "\\|")
}

fn code(text: &str) -> String {
    format!("`{text}`")
}
