//! The node table: one node for each view alive, with its parent and its region in the root.

use super::State;
use crate::error::{Error, Table};
use crate::region::Region;

/// Names a node: a slot and the generation it was made in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeId {
    pub(crate) slot: u16,
    generation: u16,
}

impl NodeId {
    /// The root's node, which is always there.
    pub const ROOT: Self = Self { slot: 0, generation: 0 };
}

/// A root, crop or slice.
///
/// A view carries its own map to the root, so the table keeps what others need of it: which bytes
/// it can reach, and whose child it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Node {
    region: Region,
    parent: u16,
    generation: u16,
    used: bool,
}

impl Node {
    pub(super) fn root(region: Region) -> Self {
        Self { region, parent: 0, generation: 0, used: true }
    }

    /// Its box in root coordinates.
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl State<'_> {
    /// The node of that name.
    ///
    /// # Errors
    /// [`Error::StaleHandle`] when it is gone.
    pub fn node(&self, id: NodeId) -> Result<&Node, Error> {
        self.nodes
            .get(usize::from(id.slot))
            .filter(|node| node.used && node.generation == id.generation)
            .ok_or(Error::StaleHandle)
    }

    /// Makes a node below `parent`.
    ///
    /// # Errors
    /// [`Error::Full`] when live views hold all nodes, [`Error::StaleHandle`] for a parent that is gone.
    pub fn add_node(&mut self, parent: NodeId, region: Region) -> Result<NodeId, Error> {
        self.node(parent)?;
        let capacity = self.nodes.len();
        // Of those that have a name.
        let mut slots = self.nodes.iter_mut().take(1 << 16).enumerate();
        let free = slots.find(|(_, node)| !node.used);
        let (slot, node) = free.ok_or(Error::Full { table: Table::Nodes, capacity })?;
        node.region = region;
        node.parent = parent.slot;
        node.used = true;
        Ok(NodeId { slot: slot as u16, generation: node.generation })
    }

    /// Frees a node; its children become its parent's. The root stays.
    ///
    /// # Errors
    /// [`Error::StaleHandle`] when it is gone already.
    pub fn remove_node(&mut self, id: NodeId) -> Result<(), Error> {
        self.node(id)?;
        self.free_node(usize::from(id.slot));
        Ok(())
    }

    /// Frees the node in a slot, whose view is gone.
    pub(crate) fn free_node(&mut self, slot: usize) {
        let Some(node) = self.nodes.get_mut(slot).filter(|node| slot > 0 && node.used) else {
            return;
        };
        node.used = false;
        node.generation = node.generation.wrapping_add(1);
        let parent = node.parent;
        for child in self.nodes.iter_mut() {
            if child.used && usize::from(child.parent) == slot {
                child.parent = parent;
            }
        }
    }

    /// Calls `each` with every live node but the root, its depth below the root, parents first.
    pub fn for_each_node(&self, each: &mut dyn FnMut(usize, &Region)) {
        visit(self.nodes, each);
    }

    /// How many views are alive, the root not counted.
    pub fn live_nodes(&self) -> usize {
        self.nodes.iter().skip(1).filter(|node| node.used).count()
    }

    pub(super) fn check_nodes(&self) -> Result<(), &'static str> {
        let root = self.root();
        for (slot, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.used) {
            if !root.contains(&node.region) {
                return Err("a node reaches beyond the root");
            }
            let parent = usize::from(node.parent);
            if slot > 0 && (parent == slot || !self.nodes.get(parent).is_some_and(|p| p.used)) {
                return Err("a node's parent is gone");
            }
        }
        Ok(())
    }
}

/// Calls `each` with every live node of a table but the root, its depth below the root, parents first.
pub(crate) fn visit(nodes: &[Node], each: &mut dyn FnMut(usize, &Region)) {
    visit_children(nodes, 0, 1, each);
}

fn visit_children(
    nodes: &[Node],
    parent: usize,
    depth: usize,
    each: &mut dyn FnMut(usize, &Region),
) {
    for (slot, node) in nodes.iter().enumerate().skip(1) {
        if node.used && usize::from(node.parent) == parent {
            each(depth, &node.region);
            visit_children(nodes, slot, depth + 1, each);
        }
    }
}
