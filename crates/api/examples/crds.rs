//! Prints one of our custom resource definitions, by its plural; `make crds` writes them into the charts.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plural = std::env::args().nth(1).unwrap_or_default();
    let all =
        api::mesh::crds()
            .into_iter()
            .chain([api::definition::crd(), api::grant::crd(), api::joining::crd()]);
    let crd = all.into_iter().find(|crd| crd.spec.names.plural == plural);
    let crd = crd.ok_or_else(|| format!("no type has the plural {plural:?}"))?;
    print!("{}", serde_saphyr::to_string(&crd)?);
    Ok(())
}
