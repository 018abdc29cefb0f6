//! `kco registry`: logins at registries, stored where Helm stores them (Helm's `pkg/registry/client.go`).

mod config;

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use charts::source::push::{self, Host};
use charts::source::{Credentials, Limits, Password, server};
use clap::{Args, Subcommand};

use crate::wait::wait_for;
use crate::{access, credential_helper, environment, prompt, report};
use config::Config;

/// Logging in and out.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Log in to a registry: the login is tried there, then kept.
    Login(Box<Login>),
    /// Forget the login at a registry.
    Logout(Logout),
}

/// The flags of `helm registry login`.
#[derive(Debug, Args)]
pub(crate) struct Login {
    /// The registry's host, with its port where it has one.
    host: String,
    /// User name.
    #[arg(short, long)]
    username: Option<String>,
    /// Password or identity token. Everybody on this machine can see it in the list of processes: better use --password-stdin.
    #[arg(short, long)]
    password: Option<String>,
    /// Read password or identity token from standard input.
    #[arg(long)]
    password_stdin: bool,
    /// Take any certificate that the registry shows.
    #[arg(long)]
    insecure: bool,
    /// A file with certificates of authorities that the registry's certificate may come from.
    #[arg(long)]
    ca_file: Option<PathBuf>,
    /// A file with a certificate to show to the registry.
    #[arg(long)]
    cert_file: Option<PathBuf>,
    /// A file with the private key of that certificate.
    #[arg(long)]
    key_file: Option<PathBuf>,
    /// Speak HTTP without TLS.
    #[arg(long)]
    plain_http: bool,
}

/// The arguments of `helm registry logout`.
#[derive(Debug, Args)]
pub(crate) struct Logout {
    /// The registry's host, as it was given for the login.
    host: String,
}

/// Logs in or out.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Login(args) => login(args),
        Command::Logout(args) => logout(args),
    }
}

fn login(args: &Login) -> Result<()> {
    let host = Host::parse(&args.host)?
        .with_plain_http(args.plain_http)
        .with_insecure_skip_verify(args.insecure);
    let trust = access::trust(
        args.ca_file.as_deref(),
        args.cert_file.as_deref(),
        args.key_file.as_deref(),
    )?;
    let (username, password) = credentials(args)?;
    // Reads the file first, so that a login that cannot be stored is not tried.
    let mut config = Config::load(environment::path("HELM_REGISTRY_CONFIG"))?;
    let shown = Credentials {
        username: username.clone(),
        password: Password::new(password.clone()),
    };
    wait_for(push::login(&host, shown, &trust, Limits::default()))?
        .with_context(|| format!("authenticating to {:?}", args.host))?;
    let server = server(&args.host);
    match config.helper(server) {
        Some(helper) => credential_helper::store(helper, server, &username, &password)?,
        None => config.put(server, &username, &password)?,
    }
    report::out("Login Succeeded\n")
}

fn logout(args: &Logout) -> Result<()> {
    let mut config = Config::load(environment::path("HELM_REGISTRY_CONFIG"))?;
    let server = server(&args.host);
    match config.helper(server) {
        Some(helper) => credential_helper::erase(helper, server)?,
        None => config.remove(server)?,
    }
    report::out(&format!("Removing login credentials for {}\n", args.host))
}

/// User name and password; asks for those that were not given, as Helm does.
fn credentials(args: &Login) -> Result<(String, String)> {
    let username = args.username.clone().unwrap_or_default();
    if args.password_stdin {
        return Ok((username, prompt::piped()?));
    }
    if let Some(password) = args.password.clone().filter(|password| !password.is_empty()) {
        report::warn("using --password via the CLI is insecure. Use --password-stdin");
        return Ok((username, password));
    }
    let username = if username.is_empty() {
        prompt::line("Username: ")?.trim().to_owned()
    } else {
        username
    };
    let what = if username.is_empty() { "Token" } else { "Password" };
    let password = prompt::secret(&format!("{what}: "))?;
    ensure!(!password.is_empty(), "{} required", what.to_lowercase());
    Ok((username, password))
}
