package tester

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	linkLasts = 24 * time.Hour
	maxLink   = 7 * 24 * time.Hour
)

func (c *apiCall) gates() error {
	f, err := c.filter("kind", "namespace", "name", "gate", "waiting", "stale", "limit")
	if err != nil {
		return err
	}
	limit := f.Limit
	f.Limit = 0
	seen := slices.DeleteFunc(c.Gates.List(f), func(g api.Gate) bool {
		return c.Check(g.Key) != nil
	})
	seen = append([]api.Gate{}, seen[:min(len(seen), limit)]...) // [] and not null
	return c.lists.JSON(c.w, http.StatusOK, struct {
		Gates []api.Gate `json:"gates"`
	}{seen})
}

// key returns the gate of the path.
func (c *apiCall) key() (api.Key, error) {
	k := api.Key{Kind: api.Kind(c.path[0]), Namespace: c.path[1], Name: c.path[2], Gate: c.path[3]}
	if k.Gate == "" {
		k.Gate = api.DefaultGate // by which scopes know it
	}
	if k.Kind != api.KindGate && k.Kind != api.KindRollback {
		return k, answer.Refuse(http.StatusNotFound, "kind %s: is neither gate nor rollback", strconv.Quote(shorten(c.path[0])))
	}
	for _, name := range c.path[1:4] {
		if len(name) > maxName {
			return k, answer.Refuse(http.StatusBadRequest, "a name in the path is longer than %d bytes", maxName)
		}
	}
	return k, nil
}

func (c *apiCall) gate() error {
	k, err := c.key()
	if err == nil {
		err = c.Check(k)
	}
	if err != nil {
		return err
	}
	return answer.JSON(c.w, http.StatusOK, c.Gates.Gate(k))
}

// changeGate opens, closes or rejects a gate, or makes links that do.
func (c *apiCall) changeGate() error {
	k, err := c.key()
	if err != nil {
		return err
	}
	action := c.path[4]
	if !slices.Contains([]string{"open", "close", "reject", "link"}, action) {
		return answer.ErrNothing
	}
	may := c.Change
	if action == "reject" || action == "link" { // a link can do both
		may = c.Reject
	}
	if err := may(k); err != nil {
		return err
	}
	if action == "link" {
		return c.link(k)
	}
	var change api.Change
	if err := c.read(&change); err != nil {
		return err
	}
	state, err := c.apply(c.caller, k, action, change)
	if err != nil {
		return err
	}
	return answer.JSON(c.w, http.StatusOK, state)
}

func (c *apiCall) link(k api.Key) error {
	var request api.LinkRequest
	if err := c.read(&request); err != nil {
		return err
	}
	ttl, err := api.ParseInterval(request.TTL, linkLasts)
	if err != nil {
		return answer.Refuse(http.StatusBadRequest, "ttl: %w", err)
	}
	if ttl > maxLink {
		return answer.Refuse(http.StatusBadRequest, "ttl: is longer than 7 days")
	}
	approve, reject, expires, err := c.Gates.Issue(k, ttl, c.Actor)
	if err != nil {
		return err
	}
	c.observeChange(c.Gates.Gate(k), "link", c.Actor)
	base := c.base(c.r) + "/link/"
	return answer.JSON(c.w, http.StatusOK, api.Link{Approve: base + approve, Reject: base + reject, Expires: expires})
}

func (c *apiCall) audit() error {
	f, err := c.filter("kind", "namespace", "name", "gate", "limit", "before")
	if err != nil {
		return err
	}
	if _, err := strconv.ParseUint(f.Before, 10, 64); err != nil && f.Before != "" {
		return answer.Refuse(http.StatusBadRequest, "parameter before: is no number of an entry")
	}
	entries := list(f, c.Gates.Audit,
		func(e api.Entry) string { return strconv.FormatUint(e.ID, 10) },
		func(e api.Entry) bool { return c.Check(e.Key) == nil })
	return c.lists.JSON(c.w, http.StatusOK, struct {
		Entries []api.Entry `json:"entries"`
	}{entries})
}
