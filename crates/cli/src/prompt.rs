//! Prompts at a terminal.

use std::io::{IsTerminal as _, Read as _, stdin};

use anyhow::{Context as _, Result, bail};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::report;

/// Maximum length of a password in bytes: nobody types more, and tokens are shorter.
const LONGEST: u64 = 64 * 1024;

/// The content of standard input, without the line break at its end.
pub(crate) fn piped() -> Result<String> {
    let mut text = String::new();
    stdin()
        .take(LONGEST)
        .read_to_string(&mut text)
        .context("could not read the password from standard input")?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    Ok(text.strip_suffix('\r').unwrap_or(text).to_owned())
}

/// Reads a line.
pub(crate) fn line(question: &str) -> Result<String> {
    report::out(question)?;
    let mut line = String::new();
    let read = stdin()
        .read_line(&mut line)
        .context("could not read the answer")?;
    if read == 0 {
        bail!(
            "there is no answer on standard input: pass --username, and the password with --password-stdin"
        );
    }
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Reads a line without echo.
pub(crate) fn secret(question: &str) -> Result<String> {
    if !stdin().is_terminal() {
        bail!("standard input is not a terminal: pass the password with --password-stdin");
    }
    let _hidden = Hidden::start()?;
    let typed = line(question);
    report::out("\n")?;
    typed
}

/// Disables the terminal's echo until it is dropped.
struct Hidden(rustix::termios::Termios);

impl Hidden {
    fn start() -> Result<Self> {
        let before = tcgetattr(stdin()).context("could not ask the terminal for its settings")?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Now, &hidden).context("could not hide what is typed")?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.0);
    }
}
