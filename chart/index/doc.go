// Package index reads the indexes of chart repositories (index.yaml, in YAML
// or JSON) as they arrive, in memory that does not depend on their size.
package index
