//! `weir list`: what can be chosen.

use super::text::hanging;
use crate::output::{print, say, say_json};
use crate::registry;
use anyhow::bail;
use serde_json::{Value, json};
use weir_core::param::{Kind, Param};

/// List what can be chosen by name: workloads, schedulers, samplers, … and the limiting factors and faults there are
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  weir list workload\n  weir list workload --json | jq '.[].name'\n  weir list fault"
)]
pub struct Args {
    /// workload, factor, fault, target, system, scheduler, death-policy, membership, launcher, sampler or sink; all of them when left out
    seam: Option<String>,
    /// Print an array of {name, about, params}
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> anyhow::Result<i32> {
    let seams: Vec<&str> = match &args.seam {
        Some(seam) => vec![seam.as_str()],
        None if args.json => bail!("--json needs a seam: one of {}", registry::SEAMS.join(", ")),
        None => registry::SEAMS.to_vec(),
    };
    for seam in seams {
        let Some(members) = registry::members(seam) else {
            bail!("no members of {seam:?} here; seams are {}", registry::SEAMS.join(", "));
        };
        if args.json {
            let all: Vec<Value> = members
                .iter()
                .map(|member| {
                    let params: Vec<Value> = member.params.iter().map(param_json).collect();
                    json!({"name": member.name, "about": member.about, "params": params})
                })
                .collect();
            say_json(serde_json::to_string_pretty(&all)?)?;
            continue;
        }
        say(seam)?;
        let widest = members.iter().map(|member| member.name.len()).max().unwrap_or(0);
        for member in members {
            let mut text = String::new();
            hanging(&mut text, &format!("  {:<widest$}  ", member.name), widest + 4, member.about);
            for param in member.params {
                let default = param.default.map(|text| format!(" ({text})")).unwrap_or_default();
                hanging(
                    &mut text,
                    &format!("      {:<18} ", param.name),
                    25,
                    &format!("{}{default}", param.about),
                );
            }
            print(&text)?;
        }
    }
    Ok(0)
}

fn param_json(param: &Param) -> Value {
    json!({"name": param.name, "kind": kind_name(param.kind), "default": param.default, "about": param.about})
}

fn kind_name(kind: Kind) -> Value {
    match kind {
        Kind::Text => "text".into(),
        Kind::Texts => "texts".into(),
        Kind::Choice(choices) => json!(choices),
        Kind::Count => "count".into(),
        Kind::Ratio => "ratio".into(),
        Kind::Rate => "rate".into(),
        Kind::Size => "size".into(),
        Kind::Duration => "duration".into(),
        Kind::Frequency => "frequency".into(),
        Kind::Flag => "flag".into(),
        Kind::Hosts => "hosts".into(),
        Kind::Target => "target".into(),
        Kind::Account => "account".into(),
        Kind::Options => json!({ "*": { "*": "value" } }),
        Kind::Map(param) => json!({ "*": kind_name(param.kind) }),
        Kind::Member(seam) => json!({ "member of": seam.name }),
        Kind::Table(params) => params.iter().map(param_json).collect::<Vec<_>>().into(),
    }
}
