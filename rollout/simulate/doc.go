// Package simulate runs an analysis with scripted outcomes and an own clock, and tells what happened tick by tick.
package simulate
