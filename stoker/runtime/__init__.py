"""What a compiled program needs when it runs: built libraries (`build`). Imports nothing of the compiler."""
