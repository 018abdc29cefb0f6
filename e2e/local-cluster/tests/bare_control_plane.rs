//! The small size: API server, store and controllers, without root.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy takes the functions tests share for ordinary ones"
)]

use std::{
    path::Path,
    process::Command,
    sync::OnceLock,
    time::{Duration, Instant},
};

use local_cluster::{ControlPlane, Options, audit::Stage, output, wait};

/// One control plane for the tests that do not disturb others; it ends with the process.
fn control_plane() -> &'static ControlPlane {
    static CONTROL_PLANE: OnceLock<ControlPlane> = OnceLock::new();
    CONTROL_PLANE.get_or_init(start)
}

fn start() -> ControlPlane {
    let control_plane = ControlPlane::start(Options::default()).unwrap();
    for (part, version) in control_plane.versions() {
        println!("{part} {version}");
    }
    for (phase, after) in control_plane.timings() {
        println!("{:.1} s {phase}", after.as_secs_f64());
    }
    control_plane
}

fn kubectl(arguments: &[&str]) -> String {
    output(&mut control_plane().kubectl(arguments)).unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    wait::until(what, Duration::from_mins(1), || Ok(holds().then_some(()))).unwrap();
}

fn get(kubeconfig: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut get = control_plane().kubectl(arguments);
    output(get.env("KUBECONFIG", kubeconfig))
}

#[test]
fn a_control_plane_starts_and_answers() {
    let namespaces = kubectl(&["get", "namespaces", "--output=name"]);
    assert!(namespaces.contains("namespace/kube-system"), "{namespaces}");
    let version = kubectl(&["version"]);
    assert!(version.contains("Server Version: v1."), "{version}");
}

#[test]
fn two_control_planes_run_side_by_side() {
    let other = start();
    assert_ne!(control_plane().api_server(), other.api_server());
    other
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: only-there}}")
        .unwrap();
    assert!(output(&mut other.kubectl(["get", "namespace", "only-there"])).is_ok());
    assert!(output(&mut control_plane().kubectl(["get", "namespace", "only-there"])).is_err());
}

#[test]
fn a_service_account_may_do_what_rbac_grants_it_and_nothing_else() {
    control_plane()
        .apply(
            "
apiVersion: v1
kind: Namespace
metadata: {name: bound}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: bound}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: bound}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: bound}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: bound}]
",
        )
        .unwrap();
    let reader = control_plane().kubeconfig_for("bound", "reader").unwrap();
    eventually("the role", || {
        get(&reader, &["get", "configmaps", "-n=bound"]).is_ok()
    });
    for refused in [
        ["get", "secrets", "-n=bound"],
        ["get", "configmaps", "-n=default"],
        ["delete", "configmaps", "-n=bound"],
    ] {
        let arguments: Vec<&str> = refused.into_iter().chain(["--all"]).collect();
        let arguments = if refused[0] == "get" {
            &refused[..]
        } else {
            &arguments
        };
        let error = get(&reader, arguments).unwrap_err().to_string();
        assert!(error.contains("system:serviceaccount:bound:reader"), "{error}");
    }
    assert!(control_plane().kubeconfig_for("bound", "nobody").is_err());
}

#[test]
fn audit_records_say_who_asked_for_what() {
    let audit = control_plane().audit();
    let mark = audit.mark().unwrap();
    control_plane()
        .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: seen, namespace: default}}")
        .unwrap();
    kubectl(&["get", "configmap", "seen"]);

    let records: Vec<_> = audit
        .since(mark)
        .unwrap()
        .map(Result::unwrap)
        .filter(|record| record.user == "local-cluster-admin" && record.name == "seen")
        .collect();
    let verbs: Vec<&str> = records.iter().map(|record| record.verb.as_str()).collect();
    assert!(verbs.contains(&"patch") && verbs.contains(&"get"), "{verbs:?}");
    let written = records.iter().find(|record| record.is_write()).unwrap();
    assert_eq!(
        (
            written.resource.as_str(),
            written.group.as_str(),
            written.version.as_str()
        ),
        ("configmaps", "", "v1")
    );
    assert_eq!((written.namespace.as_str(), written.code), ("default", 201));
    assert_eq!(written.stage, Stage::ResponseComplete);
    assert!(
        written.user_agent.starts_with("kubectl/"),
        "{}",
        written.user_agent
    );
    let after = audit.mark().unwrap();
    let later = audit.since(after).unwrap().map(Result::unwrap);
    assert!(!later.into_iter().any(|record| record.name == "seen"));
}

#[test]
fn both_kinds_of_admission_policy_work() {
    let kinds = kubectl(&["api-resources", "--api-group=admissionregistration.k8s.io"]);
    for kind in ["ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"] {
        assert!(kinds.contains(kind), "{kinds}");
    }
    control_plane()
        .apply(
            "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mark}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  matchConditions: [{name: policed, expression: \"object.metadata.name.startsWith('policed')\"}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: \"Object{metadata: Object.metadata{labels: {'marked': 'yes'}}}\"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: mark}
spec: {policyName: mark}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  matchConditions: [{name: policed, expression: \"object.metadata.name == 'policed-no'\"}]
  failurePolicy: Fail
  validations: [{expression: 'false', message: not this one}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse}
spec: {policyName: refuse, validationActions: [Deny]}
",
        )
        .unwrap();
    // The API server loads policies in the background.
    let try_it = |name: &str| {
        let mut create = control_plane().kubectl(["create", "configmap", name, "--dry-run=server"]);
        output(create.arg("--output=jsonpath={.metadata.labels.marked}"))
    };
    eventually("the mutating policy", || {
        try_it("policed").is_ok_and(|label| label == "yes")
    });
    eventually("the validating policy", || {
        try_it("policed-no").is_err_and(|error| error.to_string().contains("not this one"))
    });
}

#[test]
fn pod_security_refuses_what_is_not_restricted() {
    control_plane()
        .apply(
            "{apiVersion: v1, kind: Namespace, metadata: {name: restricted, \
             labels: {pod-security.kubernetes.io/enforce: restricted}}}",
        )
        .unwrap();
    let mut run = control_plane().kubectl(["run", "-n=restricted", "pod", "--image=none"]);
    eventually("the default ServiceAccount", || {
        control_plane().kubeconfig_for("restricted", "default").is_ok()
    });
    let error = output(&mut run).unwrap_err().to_string();
    assert!(error.contains("violates PodSecurity"), "{error}");
}

#[test]
fn the_default_controllers_run() {
    control_plane()
        .apply(
            "
apiVersion: v1
kind: Namespace
metadata: {name: controllers}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: controllers}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: none}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: controllers}
spec:
  template:
    metadata: {labels: {app: once}}
    spec: {restartPolicy: Never, containers: [{name: once, image: none}]}
",
        )
        .unwrap();
    let count = |what: &str| {
        kubectl(&["get", what, "-n=controllers", "--output=name"])
            .lines()
            .count()
    };
    eventually("pods of the Deployment and the Job", || count("pods") == 3);
    kubectl(&["delete", "deployment", "web", "-n=controllers", "--wait=false"]);
    eventually("the garbage collector", || {
        count("replicasets") == 0 && count("pods") == 1
    });
    kubectl(&["delete", "namespace", "controllers", "--timeout=60s"]);
}

#[test]
fn an_approved_certificate_request_is_signed() {
    let folder = tempfile::tempdir().unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["webhook.default.svc".to_owned()]).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "a-client");
    params.subject_alt_names.clear();
    let request = folder.path().join("request.pem");
    std::fs::write(&request, params.serialize_request(&key).unwrap().pem().unwrap()).unwrap();
    let encoded = output(Command::new("base64").arg("--wrap=0").arg(&request)).unwrap();
    control_plane()
        .apply(&format!(
            "
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {{name: a-client}}
spec:
  request: {encoded}
  signerName: kubernetes.io/kube-apiserver-client
  usages: [client auth]
"
        ))
        .unwrap();
    kubectl(&["certificate", "approve", "a-client"]);
    eventually("the signature", || {
        !kubectl(&[
            "get",
            "csr",
            "a-client",
            "--output=jsonpath={.status.certificate}",
        ])
        .is_empty()
    });
}

#[test]
fn real_helm_of_both_majors_installs_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let chart = folder.path().join("chart");
    for (major, helm) in [("v4", true), ("v3", false)] {
        let run = |arguments: &[&str]| {
            let command = if helm {
                control_plane().helm(arguments)
            } else {
                control_plane().helm3(arguments)
            };
            output(command.unwrap().current_dir(folder.path())).unwrap()
        };
        assert!(run(&["version", "--short"]).starts_with(major));
        if !chart.exists() {
            run(&["create", "chart"]);
        }
        let release = format!("release-{major}");
        run(&["install", &release, "chart"]);
        let list = run(&["list", "--short"]);
        assert!(list.contains(&release), "{list}");
    }
}

#[test]
fn a_killed_api_server_comes_back_with_what_was_stored() {
    let control_plane = start();
    control_plane
        .apply("{apiVersion: v1, kind: Namespace, metadata: {name: stored}}")
        .unwrap();
    control_plane.kill_component("kube-apiserver").unwrap();
    let mut ask = control_plane.kubectl(["get", "namespace", "stored"]);
    assert!(output(&mut ask).is_err());
    control_plane.restart_component("kube-apiserver").unwrap();
    let began = Instant::now();
    eventually("the API server", || {
        output(&mut control_plane.kubectl(["get", "namespace", "stored"])).is_ok()
    });
    println!("back after {:.1} s", began.elapsed().as_secs_f64());
}
