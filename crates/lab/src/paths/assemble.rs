//! Chains of functions, written as policies are.

use graph::{Graph, SideBySide};
use policy::{Colour, FileText, Policy};
use runtime::Assembly;

use super::{Path, Series, functions};

/// Functions in order, the first one inside.
#[derive(Clone, Debug)]
pub struct Functions {
    /// Each with what a policy says of it: `Monitor` and `report: []`.
    list: Vec<(&'static str, String)>,
    /// Flows at most.
    flows_max: u32,
}

impl Functions {
    /// None yet.
    pub fn new(flows_max: u32) -> Functions {
        Functions { list: Vec::new(), flows_max }
    }

    /// The same with one more, towards the outside.
    pub fn with(mut self, name: &'static str, config: impl Into<String>) -> Functions {
        self.list.push((name, config.into()));
        self
    }

    /// All of them in a chain.
    ///
    /// # Errors
    /// If the policy is wrong, or memory is short.
    pub fn graph(&self, consolidate: bool) -> Result<Box<Graph>, String> {
        Ok(self.assembly(consolidate, None)?.graph)
    }

    /// Creates a consolidated graph that runs commuting state functions side by side.
    ///
    /// # Errors
    /// As for [`Functions::chain`].
    pub fn side_by_side(&self, how: SideBySide) -> Result<Box<Graph>, String> {
        let mut graph = self.graph(true)?;
        graph.run_side_by_side(how).map_err(|error| error.to_string())?;
        Ok(graph)
    }

    /// One which counts the processor's cycles that are spent in each function.
    ///
    /// # Errors
    /// As for [`Functions::chain`].
    pub fn counting_graph(&self, consolidate: bool, cycles: fn() -> u64) -> Result<Box<Graph>, String> {
        Ok(self.assembly(consolidate, Some(cycles))?.graph)
    }

    /// Each of them in a chain of its own, which parses every packet and looks its flow up again:
    /// as functions that know nothing of one another do.
    ///
    /// # Errors
    /// As for [`Functions::chain`].
    pub fn apart(&self) -> Result<Series, String> {
        let alone = |function: &(&'static str, String)| {
            let functions = Functions { list: vec![function.clone()], flows_max: self.flows_max };
            Ok(Box::new(functions.graph(false)?) as Box<dyn Path>)
        };
        Ok(Series::new(self.list.iter().map(alone).collect::<Result<_, String>>()?))
    }

    fn assembly(&self, consolidate: bool, cycles: Option<fn() -> u64>) -> Result<Assembly, String> {
        assembled(&self.policy(consolidate), cycles)
    }

    fn policy(&self, consolidate: bool) -> String {
        let mut line = "inside".to_owned();
        let mut declared = String::new();
        for (number, (name, config)) in self.list.iter().enumerate() {
            line += &format!(" <-> f{number}");
            declared += &format!("{name} f{number} {{ {config} }};\n");
        }
        format!(
            "settings {{ flows: {}, seed: 1, consolidate: {consolidate} }} Port<0> inside; Port<1> outside;\n{declared}\
             pipelet main {{ {line} <-> outside; }}\n",
            self.flows_max
        )
    }
}

/// The graph of a policy, which may have branches.
///
/// # Errors
/// If the policy is wrong, or memory is short.
pub fn compiled(policy: &str) -> Result<Box<Graph>, String> {
    Ok(assembled(policy, None)?.graph)
}

fn assembled(text: &str, cycles: Option<fn() -> u64>) -> Result<Assembly, String> {
    let policy = Policy::read("lab", text, &mut |file| {
        std::fs::read_to_string(file).map(FileText::from).map_err(|error| error.to_string())
    });
    let policy = policy.map_err(|report| report.render(Colour::Off))?;
    runtime::assemble(&policy, &functions::registry(), 1, cycles).map_err(|wrong| format!("{wrong:?}"))
}
