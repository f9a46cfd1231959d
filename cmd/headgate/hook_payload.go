package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// payloadFlags are what a webhook is told.
type payloadFlags struct {
	name, namespace string
	phase           string
	checksum        string
	revision        string
	metadata        []string
	message         string
	warning         bool
}

func (f *payloadFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "`NAME` of the canary; default that of the manifest, or app")
	fl.StringVar(&f.namespace, "namespace", "", "`NAMESPACE` of the canary; default that of the manifest, or default")
	fl.StringVar(&f.phase, "phase", "", "`PHASE` of the canary; default one in which webhooks of the type are called")
	fl.StringVar(&f.checksum, "checksum", "", "`TEXT` that stands for the revision in the payload; default the checksum of --revision")
	fl.StringVar(&f.revision, "revision", "", "`TEXT` of the revision, of which the checksum is sent")
	fl.StringArrayVar(&f.metadata, "metadata", nil, "`KEY=VALUE` of the metadata in the payload; repeatable")
	fl.StringVar(&f.message, "event-message", "", "`TEXT` of the event, for type event")
	fl.BoolVar(&f.warning, "event-warning", false, "the event is a warning, for type event")
	var names []string
	for _, phase := range phases {
		names = append(names, string(phase))
	}
	complete(c, "phase", names...)
}

var phases = []rollout.Phase{
	rollout.Initialized, rollout.Waiting, rollout.Progressing, rollout.Promoting, rollout.Finalising, rollout.Succeeded, rollout.Failed,
}

// phaseOf is a phase in which webhooks of a type are called.
func phaseOf(t rollout.HookType) rollout.Phase {
	switch t {
	case rollout.HookConfirmRollout:
		return rollout.Waiting
	case rollout.HookPostRollout:
		return rollout.Succeeded
	}
	return rollout.Progressing
}

// fill completes the payload by what the flags say.
func (c *call) fill(f *payloadFlags) error {
	p := &c.payload
	p.Name = cmp.Or(f.name, p.Name, "app")
	p.Namespace = cmp.Or(f.namespace, p.Namespace, "default")
	p.Phase = cmp.Or(rollout.Phase(f.phase), phaseOf(c.hook.Type))
	if !slices.Contains(phases, p.Phase) {
		return usage("--phase %q: want one of %s", f.phase, strings.Trim(fmt.Sprint(phases), "[]"))
	}
	if p.Checksum = f.checksum; f.checksum == "" && f.revision != "" {
		p.Checksum = rollout.Checksum(f.revision, nil)
	}
	metadata, err := pairs("metadata", f.metadata)
	if err != nil {
		return err
	}
	trial := map[string]string{rollout.MetadataTrial: "true"}
	p.Metadata = merged(trial, merged(c.hook.Metadata, metadata))
	c.hook.Metadata = p.Metadata
	return c.fillEvent(f)
}

func (c *call) fillEvent(f *payloadFlags) error {
	if c.hook.Type != rollout.HookEvent {
		if f.message != "" || f.warning {
			return usage("--event-message and --event-warning go with webhooks of type event; this one is of type %s", typeOf(c.hook))
		}
		return nil
	}
	c.event = &rollout.Event{
		Message: cmp.Or(f.message, "headgate hook call"), Warning: f.warning, Time: time.Now(),
		Name: c.payload.Name, Namespace: c.payload.Namespace, Phase: c.payload.Phase, Checksum: c.payload.Checksum,
	}
	return nil
}

// merged returns a map with what is in a and b, nil when that is nothing; b wins.
func merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// pairs parses the values KEY=VALUE of a flag.
func pairs(flag string, values []string) (map[string]string, error) {
	all := map[string]string{}
	for _, text := range values {
		key, value, found := strings.Cut(text, "=")
		if !found || key == "" {
			return nil, usage("--%s %q: want KEY=VALUE", flag, redact.String(text))
		}
		all[key] = value
	}
	return all, nil
}
