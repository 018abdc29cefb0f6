//! Prints the custom resource definitions of `charts/core-provider/crds`; `make crds` writes them there.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    print!("{}", serde_saphyr::to_string(&api::definition::crd())?);
    Ok(())
}
