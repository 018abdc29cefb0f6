//! `kco inspect composition`: the answer of chart-inspector, computed locally with the user's own permissions.

use anyhow::Result;
use api::inspection::{Resource, Verb};

use super::args::Inspect;
use super::names::{self, Named};
use super::{desired, find};
use crate::release::output;
use crate::release::session;
use crate::release::table::{Cell, table};

/// Prints the objects that the composition's chart would touch, in the order of installation.
pub(crate) fn run(args: &Inspect) -> Result<()> {
    let touched = session::run(&args.one.connection, async |session| {
        let (resource, composition) = find::one(session, &args.one.composition).await?;
        let Named { release, .. } = names::name(session, &resource, &composition).await?;
        let krateo_namespace = &args.controller.krateo_namespace;
        let governed = desired::find(session, &composition, &release, krateo_namespace).await?;
        governed.touched().await
    })?;
    output::print(args.one.output.output, &touched, || text(&touched))
}

fn text(touched: &[Resource]) -> String {
    let mut rows: Vec<Vec<Cell>> = vec![
        ["RESOURCE", "NAMESPACE", "NAME", "VERBS", "TEMPLATE"]
            .map(Cell::from)
            .into(),
    ];
    rows.extend(touched.iter().map(|object| {
        let kind = match object.group.as_str() {
            "" => object.resource.clone(),
            group => format!("{}.{group}", object.resource),
        };
        let or_dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
        let verbs: Vec<&str> = object.verbs.iter().copied().map(Verb::as_str).collect();
        vec![
            kind.into(),
            or_dash(&object.namespace).into(),
            or_dash(&object.name).into(),
            verbs.join(",").into(),
            object.path.as_deref().unwrap_or("lookup").into(),
        ]
    }));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_a_line_with_verbs_and_template() {
        let rendered = Resource {
            path: Some("web/templates/a.yaml".to_owned()),
            ..Resource::new(
                "apps",
                "v1",
                "deployments",
                "team",
                "web",
                &[Verb::Get, Verb::Patch],
            )
        };
        let text = text(&[rendered, Resource::looked_up("", "v1", "nodes", "", "")]);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1..],
            [
                vec![
                    "deployments.apps",
                    "team",
                    "web",
                    "get,patch",
                    "web/templates/a.yaml"
                ],
                vec!["nodes", "-", "-", "list,watch", "lookup"],
            ]
        );
    }
}
