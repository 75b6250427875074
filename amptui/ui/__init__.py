"""The screen: a client of the engine that draws what happened and turns keys into commands; never torch."""
