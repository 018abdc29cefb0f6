//! Measures how much of the thread's stack is in use, so that deep recursion ends in an error and not in a crash.

/// Measures the use of the stack from where it was created.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    start: usize,
    budget: usize,
}

impl Stack {
    /// Allows `budget` bytes below the caller.
    pub fn new(budget: usize) -> Self {
        Self {
            start: here(),
            budget,
        }
    }

    /// Whether the budget is used up.
    pub fn is_exhausted(&self) -> bool {
        self.start.abs_diff(here()) > self.budget
    }
}

/// The address of a local variable: the current end of the stack.
#[inline(never)]
fn here() -> usize {
    let marker = 0u8;
    std::ptr::from_ref(std::hint::black_box(&marker)).addr()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recurse(stack: &Stack, depth: u32) -> u32 {
        if stack.is_exhausted() || depth == 1_000_000 {
            return depth;
        }
        std::hint::black_box(recurse(stack, depth + 1))
    }

    #[test]
    fn recursion_is_stopped_within_the_budget() {
        let depth = recurse(&Stack::new(100_000), 0);
        assert!((100..100_000).contains(&depth), "{depth}");
    }
}
