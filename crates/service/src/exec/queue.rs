//! A fair queue: callers take turns, and the execs of one caller run in the order of their
//! requests.

use std::collections::VecDeque;

/// The queue. Its owner limits its length.
#[derive(Debug)]
pub(super) struct Queue<C, T> {
    /// One line per caller, none of them empty; the first one is next.
    lines: VecDeque<(C, VecDeque<T>)>,
}

impl<C: PartialEq, T> Queue<C, T> {
    pub(super) fn new() -> Self {
        Self {
            lines: VecDeque::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lines.iter().map(|(_, line)| line.len()).sum()
    }

    /// Appends to the caller's line. A caller without a line gets its turn after all others.
    pub(super) fn push(&mut self, caller: C, waiting: T) {
        match self.lines.iter_mut().find(|(who, _)| *who == caller) {
            Some((_, line)) => line.push_back(waiting),
            None => self.lines.push_back((caller, VecDeque::from([waiting]))),
        }
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let (caller, mut line) = self.lines.pop_front()?;
        let next = line.pop_front();
        if !line.is_empty() {
            self.lines.push_back((caller, line));
        }
        next
    }

    /// Removes an entry that need not wait any longer.
    pub(super) fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<T> {
        let mut found = None;
        for (_, line) in &mut self.lines {
            if let Some(place) = line.iter().position(&is_it) {
                found = line.remove(place);
                break;
            }
        }
        self.lines.retain(|(_, line)| !line.is_empty());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;

    fn drain(queue: &mut Queue<char, u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn callers_take_turns_and_each_keeps_its_order() {
        let mut queue = Queue::new();
        for (caller, number) in [
            ('a', 1),
            ('a', 2),
            ('a', 3),
            ('b', 10),
            ('c', 20),
            ('b', 11),
        ] {
            queue.push(caller, number);
        }
        assert_eq!(queue.len(), 6);
        assert_eq!(drain(&mut queue), [1, 10, 20, 2, 11, 3]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn who_comes_back_waits_for_the_others() {
        let mut queue = Queue::new();
        queue.push('a', 1);
        queue.push('b', 10);
        assert_eq!(queue.pop(), Some(1));
        queue.push('a', 2);
        assert_eq!(drain(&mut queue), [10, 2]);
    }

    #[test]
    fn what_is_taken_out_does_not_run() {
        let mut queue = Queue::new();
        queue.push('a', 1);
        queue.push('b', 2);
        assert_eq!(queue.remove(|number| *number == 1), Some(1));
        assert_eq!(queue.remove(|number| *number == 1), None);
        assert_eq!(drain(&mut queue), [2]);
    }
}
