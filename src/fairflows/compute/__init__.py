"""Where and how numbers are crunched, and how progress and results look: devices, threads, steps, bars, cards."""
