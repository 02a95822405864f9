"""`kubectl elasticjob`: a job at a glance, for people at a terminal.

It asks the cluster through kubectl alone, so that it works with whatever context and credentials its user has, and
starts at once. Rendering is pure, from objects of the API to lines (`picture`, `timeline`, `events`, `why`); `kubectl`,
`screen` and `main` do the talking. What comes from the cluster is shown without control characters.
"""
