//! What a terminal gets of `kco`: completions that bash runs, manual pages, the name as a plugin of kubectl, the version.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::Command;

const KCO: &str = env!("CARGO_BIN_EXE_kco");

fn kco(arguments: &[&str]) -> String {
    printed(Command::new(KCO).args(arguments))
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_verbs_and_flags() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("kco.bash");
    fs::write(&script, kco(&["completion", "bash"])).unwrap();
    let completed = |words: &str, last: &str| {
        let before = words.split(' ').count();
        let ask = format!(
            "source {}; COMP_WORDS=({words} {last}); COMP_CWORD={before}; _kco kco {last:?} kco; echo ${{COMPREPLY[@]}}",
            script.display()
        );
        printed(Command::new("bash").args(["-c", &ask]))
    };
    assert_eq!(completed("kco", "templ"), "template\n");
    assert_eq!(completed("kco template", "--show-o"), "--show-only\n");
}

#[test]
fn other_shells_have_completions() {
    for (shell, sign) in [
        ("zsh", "#compdef kco"),
        ("fish", "complete -c kco"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let script = kco(&["completion", shell]);
        assert!(script.contains(sign) && script.contains("template"), "{shell}");
    }
}

#[test]
fn every_verb_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    kco(&["docs", "--type", "man", "--dir", folder.path().to_str().unwrap()]);
    for verb in kco(&["--help"]).lines() {
        let Some((verb, _)) = verb.strip_prefix("  ").and_then(|line| line.split_once(' ')) else {
            continue;
        };
        if verb.is_empty() || verb.starts_with('-') || verb == "help" {
            continue;
        }
        let page = fs::read_to_string(folder.path().join(format!("kco-{verb}.1"))).expect(verb);
        assert!(page.contains(".SH SYNOPSIS"), "{verb}");
    }
}

#[test]
fn a_plugin_of_kubectl_says_how_it_was_called() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-kco");
    std::os::unix::fs::symlink(KCO, &plugin).unwrap();
    let help = printed(Command::new(&plugin).arg("--help"));
    assert!(help.contains("Usage: kubectl kco <COMMAND>"), "{help}");
}

#[test]
fn the_version_is_that_of_the_package() {
    let version = concat!("v", env!("CARGO_PKG_VERSION"));
    assert_eq!(kco(&["version", "--short"]), format!("{version}\n"));
    let whole = kco(&["version"]);
    assert!(
        whole.starts_with(&format!("version.BuildInfo{{Version:\"{version}\"")),
        "{whole}"
    );
}
