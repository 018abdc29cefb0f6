//! The files that `helm install` applies say what the code says.
#![expect(clippy::disallowed_methods, reason = "the chart is a file")]

use kube::CustomResourceExt as _;

#[test]
fn the_charts_crd_is_the_one_of_the_code() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../charts/core-provider/crds/compositiondefinitions.yaml"
    );
    let written = std::fs::read_to_string(path).unwrap();
    let written: serde_json::Value = serde_saphyr::from_str(&written).unwrap();
    let wanted = serde_json::to_value(api::CompositionDefinition::crd()).unwrap();
    assert_eq!(written, wanted, "run `make crds`");
}
