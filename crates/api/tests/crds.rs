//! The CRD files that `helm install` applies are those of the code.
#![expect(clippy::disallowed_methods, reason = "the chart is a file")]

#[test]
fn the_charts_crds_are_those_of_the_code() {
    for crd in [api::definition::crd(), api::grant::crd()] {
        let file = format!("charts/core-provider/crds/{}.yaml", crd.spec.names.plural);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_owned() + &file;
        let written = std::fs::read_to_string(path).unwrap();
        let written: serde_json::Value = serde_saphyr::from_str(&written).unwrap();
        assert_eq!(written, serde_json::to_value(crd).unwrap(), "run `make crds`");
    }
}

#[test]
fn the_multicluster_operators_crds_are_those_of_the_code() {
    for crd in api::mesh::crds() {
        let file = format!("charts/multicluster-operator/crds/{}.yaml", crd.spec.names.plural);
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_owned() + &file;
        let written = std::fs::read_to_string(path).unwrap();
        let written: serde_json::Value = serde_saphyr::from_str(&written).unwrap();
        assert_eq!(written, serde_json::to_value(crd).unwrap(), "run `make crds`");
    }
}

/// FNV-1a of a CRD's spec, and the edition that it belongs to.
const DEFINITION: (u32, u64) = (6, 16_208_446_520_256_092_354);
const GRANT: (u32, u64) = (1, 4_395_180_572_312_680_134);

#[test]
fn a_type_that_changed_is_of_a_newer_edition() {
    for (edition, crd, known) in [
        (api::definition::EDITION, api::definition::crd(), DEFINITION),
        (api::grant::EDITION, api::grant::crd(), GRANT),
    ] {
        let spec = serde_json::to_value(crd.spec).unwrap().to_string();
        let digest = spec.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| {
            (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        assert_eq!(
            (edition, digest),
            known,
            "raise its `EDITION`, write both here, and run `make crds`"
        );
    }
}
