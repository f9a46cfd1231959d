package document

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// Limits of YAML that other packages decode.
const (
	nodeBytes = 32 // that a node counts in addition to its text
	maxLevels = 100
	maxTags   = 1000 // occurrences of %TAG; the decoder compares each with all before it
)

// CheckYAML rejects a YAML document that must not be given to a decoder that expands
// aliases and treats keys as texts: one that is more than 100 levels deep, whose aliases
// expand to more than aliasBytes bytes, or that has keys with the same text but different
// types. (1 MiB with aliases can become gigabytes.)
func CheckYAML(text []byte, aliasBytes int) error {
	if bytes.Count(text, []byte("%TAG")) > maxTags {
		return fmt.Errorf("it has more than %d directives %%TAG", maxTags)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err
	}
	check := yamlCheck{aliasBytes, aliasBytes}
	return check.node(&doc, 0, false)
}

type yamlCheck struct{ most, left int }

// node checks a node. aliased reports whether an alias led to it.
func (c *yamlCheck) node(n *yaml.Node, level int, aliased bool) error {
	if level > maxLevels {
		return fmt.Errorf("it is more than %d levels deep, aliases written out", maxLevels)
	}
	if n.Kind == yaml.AliasNode {
		return c.node(n.Alias, level, true)
	}
	if aliased {
		if c.left -= nodeBytes + len(n.Value) + len(n.Tag); c.left < 0 {
			return fmt.Errorf("its aliases stand for more than %d bytes", c.most)
		}
	}
	keys := map[string]string{} // tag of each key
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if tag, twice := keys[child.Value]; twice && tag != child.Tag && child.Kind == yaml.ScalarNode {
				return fmt.Errorf("two keys are %.120q", child.Value)
			}
			keys[child.Value] = child.Tag
		}
		if err := c.node(child, level+1, aliased); err != nil {
			return err
		}
	}
	return nil
}
