"""Where and how numbers are crunched: devices, threads, optimiser steps, progress bars."""
