"""Sources of events behind one interface, `kvviz.sources.source.Source`: a live engine, a recording or a lane.

May import: comparison, config, errors, events, experiments, log, messages, model.
"""
