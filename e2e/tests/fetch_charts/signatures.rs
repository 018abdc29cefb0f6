//! Charts that must be signed: by Helm's provenance with a key of `GnuPG`, or in a registry as cosign does.

use anyhow::Result;
use e2e::Signer;
use e2e::cosign::{CosignKey, Repository, Signed};
use e2e::namespace::condition;
use serde_json::{Value, json};

use super::repositories::{Files, serve};
use super::sources::{Sources, chart, fetched, refused, secret};

/// A chart that must be signed by a key of this Secret.
fn by_keyring(url: &str, secret: &str) -> Value {
    json!({"url": url, "verify": {"keyringRef": {"name": secret}}})
}

#[test]
fn a_chart_with_helms_provenance_is_taken_from_every_source() -> Result<()> {
    let sources = Sources::shared()?;
    let site = sources.platform.site();
    let namespace = sources.platform.namespace("signed")?;
    for (name, algorithm) in [("robot", "rsa3072"), ("eddy", "ed25519")] {
        let signer = Signer::new(name, algorithm)?;
        secret(&namespace, name, &json!({"keyring.gpg": signer.public_key()?}))?;
        let make = |kind: &str| chart(&format!("{name}-{kind}"), "1.0.0")?.package_signed(site, &signer);

        let package = make("file")?;
        let path = format!("/charts/{name}-file-1.0.0.tgz");
        let server = serve(Files::from([
            (path.clone(), package.bytes()?),
            (format!("{path}.prov"), package.provenance()?),
        ]))?;
        fetched(
            &namespace,
            &format!("{name}-file"),
            &by_keyring(&server.url(&path), name),
        )?;

        let package = make("listed")?;
        let folder = tempfile::tempdir()?;
        std::fs::write(
            folder.path().join(format!("{name}-listed-1.0.0.tgz")),
            package.bytes()?,
        )?;
        super::repositories::index(site, folder.path(), &[])?;
        let mut files = super::repositories::files_of(folder.path())?;
        files.insert(
            format!("/charts/{name}-listed-1.0.0.tgz.prov"),
            package.provenance()?,
        );
        let server = serve(files)?;
        let mut listed = by_keyring(&server.url("/charts"), name);
        listed["repo"] = json!(format!("{name}-listed"));
        listed["version"] = json!("^1");
        fetched(&namespace, &format!("{name}-listed"), &listed)?;

        let mut pushed = by_keyring(
            &make("pushed")?.push(site, &sources.open, &["--plain-http"])?,
            name,
        );
        pushed["version"] = json!("1.0.0");
        fetched(&namespace, &format!("{name}-pushed"), &pushed)?;
    }
    Ok(())
}

#[test]
fn a_chart_whose_provenance_proves_nothing_is_refused_with_the_reason() -> Result<()> {
    let sources = Sources::shared()?;
    let site = sources.platform.site();
    let namespace = sources.platform.namespace("badly-signed")?;
    let (robot, stranger) = (
        Signer::new("robot", "rsa3072")?,
        Signer::new("stranger", "ed25519")?,
    );
    secret(&namespace, "robot", &json!({"keyring.gpg": robot.public_key()?}))?;
    secret(
        &namespace,
        "stranger",
        &json!({"keyring.gpg": stranger.public_key()?}),
    )?;
    let package = chart("vouched", "1.0.0")?.package_signed(site, &robot)?;
    let provenance = String::from_utf8(package.provenance()?)?;
    let other = chart("vouched", "1.0.0")?;
    other.write(
        "templates/more.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: more}}",
    )?;
    let other = other.package(site)?;
    let mut files = Files::new();
    let mut put = |folder: &str, name: &str, archive: Vec<u8>, provenance: Option<String>| {
        files.insert(format!("/{folder}/{name}"), archive);
        files.extend(provenance.map(|text| (format!("/{folder}/{name}.prov"), text.into_bytes())));
    };
    let name = "vouched-1.0.0.tgz";
    put("good", name, package.bytes()?, Some(provenance.clone()));
    put("tampered", name, other.bytes()?, Some(provenance.clone()));
    let changed = provenance.replace(&package.digest()?, &other.digest()?);
    put("rewritten", name, other.bytes()?, Some(changed));
    put("renamed", "trusted-1.0.0.tgz", package.bytes()?, Some(provenance));
    put(
        "nonsense",
        name,
        package.bytes()?,
        Some("<html></html>".to_owned()),
    );
    let server = serve(files)?;
    let check = |folder: &str, name: &str, keys: &str, reason: &str| {
        let path = format!("/{folder}/{name}");
        let message = format!(
            "the signature of {path} at {} is not accepted: {reason}",
            server.host()
        );
        let definition = format!("{folder}-by-{keys}");
        refused(
            &namespace,
            &definition,
            &by_keyring(&server.url(&path), keys),
            &message,
        )
        .map(drop)
    };
    let wrong_key = format!(
        "no key of the keyring made it; it was made by key {}",
        robot.fingerprint()?
    );
    check("good", name, "stranger", &wrong_key)?;
    let tampered = format!(
        "it is for {name} with digest {}, this one has {}",
        package.digest()?,
        other.digest()?
    );
    check("tampered", name, "robot", &tampered)?;
    let rewritten = format!(
        "it does not fit the text, which was changed after {} signed it",
        robot.described()?
    );
    check("rewritten", name, "robot", &rewritten)?;
    check(
        "renamed",
        "trusted-1.0.0.tgz",
        "robot",
        &format!("it is for [{name}], not for trusted-1.0.0.tgz"),
    )?;
    check("nonsense", name, "robot", "it is not a clear-signed text")
}

#[test]
fn a_chart_without_provenance_and_a_keyring_without_keys_are_refused() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("unsigned")?;
    let robot = Signer::new("robot", "ed25519")?;
    secret(&namespace, "robot", &json!({"keyring.gpg": robot.public_key()?}))?;
    secret(&namespace, "none", &json!({"keyring.gpg": "no key"}))?;
    let package = chart("unsigned", "1.0.0")?.package(sources.platform.site())?;
    let path = "/unsigned-1.0.0.tgz";
    let server = serve(Files::from([(path.to_owned(), package.bytes()?)]))?;
    let unsigned = format!(
        "{path} at {} is not signed: make its provenance file with helm package --sign, and publish that \
         beside it with .prov at the end",
        server.host()
    );
    refused(
        &namespace,
        "unsigned",
        &by_keyring(&server.url(path), "robot"),
        &unsigned,
    )?;
    let (url, _) = sources.push(&sources.open, "unsigned-pushed", "1.0.0", &["--plain-http"])?;
    let mut pushed = by_keyring(&url, "robot");
    pushed["version"] = json!("1.0.0");
    let unsigned = format!(
        "charts/unsigned-pushed:1.0.0 at {} is not signed: make it with helm package --sign, then push it with its .prov \
         file beside it",
        sources.open
    );
    refused(&namespace, "unsigned-pushed", &pushed, &unsigned)?;
    refused(
        &namespace,
        "no-keys",
        &by_keyring(&server.url(path), "none"),
        "key keyring.gpg of Secret unsigned/none cannot be used as the signers' keys: it contains no OpenPGP key that can sign: expected the output of gpg --export, with keys of RSA, Ed25519, or ECDSA on the curves P-256 and P-384",
    )
    .map(drop)
}

#[test]
fn a_key_that_is_taken_out_of_the_keyring_stops_being_accepted() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("key-withdrawn")?;
    let (robot, other) = (Signer::new("robot", "ed25519")?, Signer::new("other", "ed25519")?);
    secret(&namespace, "keys", &json!({"keyring.gpg": robot.public_key()?}))?;
    let package = chart("distrusted", "1.0.0")?.package_signed(sources.platform.site(), &robot)?;
    let url = package.push(sources.platform.site(), &sources.open, &["--plain-http"])?;
    let mut chart = by_keyring(&url, "keys");
    chart["version"] = json!("1.0.0");
    fetched(&namespace, "distrusted", &chart)?;
    secret(&namespace, "keys", &json!({"keyring.gpg": other.public_key()?}))?;
    let definition = namespace.wait_for("compositiondefinitions", "distrusted", "Synced", "False")?;
    assert_eq!(
        condition(&definition, "Synced").unwrap()["message"],
        format!(
            "could not observe the definition: could not fetch the chart: the signature of charts/distrusted:1.0.0 at {} \
             is not accepted: no key of the keyring made it; it was made by key {}",
            sources.open,
            robot.fingerprint()?
        )
    );
    let both = robot.public_key()? + &other.public_key()?;
    secret(&namespace, "keys", &json!({"keyring.gpg": both}))?;
    namespace.wait_for("compositiondefinitions", "distrusted", "Synced", "True")?;
    Ok(())
}

#[test]
fn a_chart_that_cosign_signed_is_taken_and_any_other_refused_with_the_reason() -> Result<()> {
    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("cosigned")?;
    let (ours, strangers) = (CosignKey::generate()?, CosignKey::generate()?);
    secret(&namespace, "ours", &json!({"cosign.pub": ours.public_key()}))?;
    secret(&namespace, "none", &json!({"cosign.pub": "no key"}))?;
    let case = |name: &str, sign: &dyn Fn(&Case) -> Result<Option<Signed>>| -> Result<Case> {
        let case = Case::push(sources, name)?;
        if let Some(signed) = sign(&case)? {
            case.repository.put_signature(&case.manifest, &signed)?;
        }
        Ok(case)
    };

    let good = case("cosigned", &|case| ours.sign(&case.url, &case.manifest).map(Some))?;
    let definition = fetched(&namespace, "cosigned", &good.chart("ours"))?;
    assert_eq!(definition["status"]["chart"]["digest"], good.digest);

    let check = |case: &Case, reason: &str| {
        let message = format!(
            "the signature of charts/{}:1.0.0 at {} is not accepted: {reason}",
            case.name, sources.open
        );
        refused(&namespace, case.name.as_str(), &case.chart("ours"), &message).map(drop)
    };
    let wrong = case("cosigned-by-others", &|case| {
        strangers.sign(&case.url, &case.manifest).map(Some)
    })?;
    check(&wrong, "it is not by the given key")?;
    let changed = case("cosigned-changed", &|case| {
        let signed = ours.sign(&case.url, &good.manifest)?;
        let payload = signed.payload.replace(&good.manifest, &case.manifest);
        Ok(Some(Signed { payload, ..signed }))
    })?;
    check(&changed, "it is not by the given key")?;
    let moved = case("cosigned-moved", &|_| {
        ours.sign(&good.url, &good.manifest).map(Some)
    })?;
    check(
        &moved,
        &format!(
            "it is for {}, the chart's manifest is {}",
            good.manifest, moved.manifest
        ),
    )?;

    let unsigned = case("not-cosigned", &|_| Ok(None))?;
    let message = |name: &str| {
        format!(
            "charts/{name}:1.0.0 at {} is not signed: sign it with cosign sign --key, with signatures kept beside it in the \
             registry",
            sources.open
        )
    };
    refused(
        &namespace,
        "not-cosigned",
        &unsigned.chart("ours"),
        &message("not-cosigned"),
    )?;
    // Other content under the tag of a chart that was signed.
    let replaced = case("cosigned-replaced", &|case| {
        ours.sign(&case.url, &case.manifest).map(Some)
    })?;
    let other = chart("cosigned-replaced", "1.0.0")?;
    other.write(
        "templates/more.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: more}}",
    )?;
    other.package(sources.platform.site())?.push(
        sources.platform.site(),
        &sources.open,
        &["--plain-http"],
    )?;
    refused(
        &namespace,
        "cosigned-replaced",
        &replaced.chart("ours"),
        &message("cosigned-replaced"),
    )?;
    refused(
        &namespace,
        "no-key",
        &good.chart("none"),
        "key cosign.pub of Secret cosigned/none cannot be used as the cosign key: it is not a usable public key: expected lines from -----BEGIN PUBLIC KEY----- to its END with an ECDSA P-256, RSA or Ed25519 key, as in \
         cosign.pub",
    )
    .map(drop)
}

/// The format of cosign 3.
#[test]
fn a_chart_with_a_bundle_of_cosign_is_taken_and_any_other_refused_with_the_reason() -> Result<()> {
    const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
    const ATTESTED: &str = "https://cosign.sigstore.dev/attestation/vuln/v1";

    let sources = Sources::shared()?;
    let namespace = sources.platform.namespace("bundled")?;
    let (ours, strangers) = (CosignKey::generate()?, CosignKey::generate()?);
    secret(&namespace, "ours", &json!({"cosign.pub": ours.public_key()}))?;
    let case = |name: &str, bundle: &dyn Fn(&Case) -> Result<Value>| -> Result<Case> {
        let case = Case::push(sources, name)?;
        case.repository.put_bundle(&case.manifest, &bundle(&case)?)?;
        Ok(case)
    };
    let check = |case: &Case, reason: &str| {
        let message = format!(
            "the signature of charts/{}:1.0.0 at {} is not accepted: {reason}",
            case.name, sources.open
        );
        refused(&namespace, case.name.as_str(), &case.chart("ours"), &message).map(drop)
    };

    let good = case("bundled", &|case| ours.bundle(SIGNED, &case.manifest))?;
    let definition = fetched(&namespace, "bundled", &good.chart("ours"))?;
    assert_eq!(definition["status"]["chart"]["digest"], good.digest);
    let wrong = case("bundled-by-others", &|case| {
        strangers.bundle(SIGNED, &case.manifest)
    })?;
    check(&wrong, "it is not by the given key")?;
    let attested = case("bundled-attested", &|case| ours.bundle(ATTESTED, &case.manifest))?;
    check(
        &attested,
        &format!("it is not a cosign signature but a \"{ATTESTED}\""),
    )?;
    let moved = case("bundled-moved", &|_| ours.bundle(SIGNED, &good.manifest))?;
    check(
        &moved,
        &format!(
            "it is for {}, the chart's manifest is {}",
            good.manifest, moved.manifest
        ),
    )
}

/// A chart in the open registry.
struct Case {
    name: String,
    url: String,
    digest: String,
    repository: Repository,
    manifest: String,
}

impl Case {
    fn push(sources: &Sources, name: &str) -> Result<Self> {
        let (url, digest) = sources.push(&sources.open, name, "1.0.0", &["--plain-http"])?;
        let repository = Repository::new(&sources.open, &format!("charts/{name}"));
        let manifest = repository.digest("1.0.0")?;
        Ok(Self {
            name: name.to_owned(),
            url,
            digest,
            repository,
            manifest,
        })
    }

    fn chart(&self, key: &str) -> Value {
        json!({"url": self.url, "version": "1.0.0", "verify": {"cosignKeyRef": {"name": key}}})
    }
}

/// Signed by gpg and Helm, and verified by `kco` as by Helm.
#[test]
fn kco_verifies_as_helm_does() -> Result<()> {
    let sources = Sources::shared()?;
    let site = sources.platform.site();
    let (robot, stranger) = (
        Signer::new("robot", "rsa3072")?,
        Signer::new("stranger", "rsa3072")?,
    );
    let package = chart("verified", "1.0.0")?.package_signed(site, &robot)?;
    let path = "/verified-1.0.0.tgz";
    let server = serve(Files::from([
        (path.to_owned(), package.bytes()?),
        (format!("{path}.prov"), package.provenance()?),
    ]))?;
    for (signer, is_success) in [(&robot, true), (&stranger, false)] {
        let keyring = signer.public_keys()?;
        let keyring = keyring.path().to_string_lossy();
        let arguments = ["pull", &server.url(path), "--verify", "--keyring", &keyring];
        let helm = super::kco::run(site.helm::<&str>([]), &arguments)?;
        let kco = super::kco::run(super::kco::kco()?, &arguments)?;
        assert_eq!((helm.success, kco.success), (is_success, is_success));
        e2e::progress(format!("helm: {}kco: {}", helm.output, kco.output));
    }
    Ok(())
}
