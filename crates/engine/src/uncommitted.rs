//! A created container that is not handed over yet.

/// A container that its caller has not taken yet. Dropping it removes the container, unless it
/// existed before: a caller that went away leaves nothing behind.
pub(crate) struct Uncommitted<T> {
    value: Option<T>,
    /// Removes the container; must not block.
    undo: Option<Box<dyn FnOnce() + Send>>,
}

impl<T> Uncommitted<T> {
    /// A container that was created for this caller.
    pub(crate) fn made(value: T, undo: impl FnOnce() + Send + 'static) -> Self {
        Self {
            value: Some(value),
            undo: Some(Box::new(undo)),
        }
    }

    /// A container that existed before.
    pub(crate) fn existing(value: T) -> Self {
        Self {
            value: Some(value),
            undo: None,
        }
    }

    /// Hands the container over: from here on it stays.
    pub(crate) fn commit(mut self) -> T {
        self.undo = None;
        self.value.take().expect("only `commit` takes it, once")
    }
}

impl<T> Drop for Uncommitted<T> {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take() {
            undo();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_nobody_takes_is_undone_and_what_is_taken_or_was_there_is_not() {
        let undone = Arc::new(AtomicBool::new(false));
        let made = || {
            let undone = Arc::clone(&undone);
            Uncommitted::made(7, move || undone.store(true, Ordering::SeqCst))
        };
        assert_eq!(made().commit(), 7);
        drop(Uncommitted::existing(7));
        assert!(!undone.load(Ordering::SeqCst));
        drop(made());
        assert!(undone.load(Ordering::SeqCst));
    }
}
