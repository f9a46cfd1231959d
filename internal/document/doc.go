// Package document reads streams of YAML and JSON documents strictly: every value keeps its line, and Go values are filled as the schema of an API server would have them.
package document
