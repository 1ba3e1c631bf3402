//! A slab for one thread. Its keys are plain numbers that can move to any thread; the items stay.

use std::cell::RefCell;

/// A table with reusable slots.
pub(super) struct Slab<T> {
    slots: RefCell<Vec<SlabSlot<T>>>,
    free_indexes: RefCell<Vec<u32>>,
}

struct SlabSlot<T> {
    /// Number of items that the slot has had before, so that an old key finds nothing.
    generation: u32,
    item: Option<T>,
}

/// The key of one item in a slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlabKey {
    index: u32,
    generation: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: RefCell::default(), free_indexes: RefCell::default() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&self, item: T) -> SlabKey {
        let mut slots = self.slots.borrow_mut();
        let index = self.free_indexes.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(SlabSlot { generation: 0, item: None });
            // At most one slot per open request, and each request has a file descriptor.
            (slots.len() - 1) as u32
        });
        let slot = &mut slots[index as usize];
        slot.item = Some(item);
        SlabKey { index, generation: slot.generation }
    }

    pub(super) fn remove(&self, key: SlabKey) -> Option<T> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free_indexes.borrow_mut().push(key.index);
        slot.item.take()
    }

    pub(super) fn contains(&self, key: SlabKey) -> bool {
        self.slots.borrow().get(key.index as usize).is_some_and(|slot| slot.generation == key.generation)
    }

    /// Gives access to an item. The item is outside of its slot meanwhile, so that `use_item` may
    /// use the slab.
    pub(super) fn with<U>(&self, key: SlabKey, use_item: impl FnOnce(&mut T) -> U) -> Option<U> {
        let take_item = |slots: &mut Vec<SlabSlot<T>>| -> Option<T> {
            slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?.item.take()
        };
        let mut item = take_item(&mut self.slots.borrow_mut())?;
        let result = use_item(&mut item);
        let mut slots = self.slots.borrow_mut();
        if let Some(slot) = slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation) {
            slot.item = Some(item);
        }
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_removed_item_finds_nothing() {
        let slab = Slab::default();
        let first = slab.insert('a');
        assert_eq!(slab.with(first, |item| *item), Some('a'));
        assert_eq!(slab.remove(first), Some('a'));
        let second = slab.insert('b');
        assert_eq!((slab.remove(first), slab.contains(first), slab.contains(second)), (None, false, true));
        assert_eq!(slab.with(second, |_| slab.remove(second)), Some(None));
        assert!(!slab.contains(second), "the item was removed while it was in use");
    }
}
