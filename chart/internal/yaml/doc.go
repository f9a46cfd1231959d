// Package yaml reads YAML and JSON as a stream of events, in memory that does
// not depend on the size of the document.
package yaml
