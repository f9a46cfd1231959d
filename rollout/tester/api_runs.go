package tester

import (
	"net/http"
	"strconv"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

func (c *apiCall) runs() error {
	f, err := c.filter("namespace", "name", "checksum", "type", "state", "limit", "before")
	if err != nil {
		return err
	}
	runs := list(f, c.Runs.Runs,
		func(r api.Run) string { return r.ID },
		func(r api.Run) bool { return c.See(r.Namespace, r.Type) == nil })
	for i := range runs {
		runs[i].Output, runs[i].URL = "", c.runURL(c.r, runs[i].ID)
	}
	return c.lists.JSON(c.w, http.StatusOK, struct {
		Runs []api.Run `json:"runs"`
	}{runs})
}

// known returns the run of the path, which the caller may see.
func (c *apiCall) known() (api.Run, error) {
	state, err := c.Runs.Run(c.path[0])
	if err == nil {
		err = c.See(state.Namespace, state.Type)
	}
	state.URL = c.runURL(c.r, state.ID)
	return state, err
}

func (c *apiCall) run() error {
	state, err := c.known()
	if err != nil {
		return err
	}
	return answer.JSON(c.w, http.StatusOK, state)
}

func (c *apiCall) cancel() error {
	state, err := c.known()
	if err == nil {
		err = c.Run(state.Namespace, state.Type)
	}
	if err != nil {
		return err
	}
	if state, err = c.Runs.Cancel(c.r.Context(), state.ID, c.Actor); err != nil {
		return err
	}
	state.URL = c.runURL(c.r, state.ID)
	return answer.JSON(c.w, http.StatusOK, state)
}

// output answers with what a run wrote, as it is kept; with follow until the run has ended.
func (c *apiCall) output() error {
	state, err := c.known()
	if err != nil {
		return err
	}
	follow := false
	for name, values := range c.r.URL.Query() {
		follow, err = strconv.ParseBool(values[0])
		if name != "follow" || len(values) != 1 || err != nil {
			return answer.Refuse(http.StatusBadRequest, "parameters: there is follow alone, true or false")
		}
	}
	header := c.w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	if c.r.Method == http.MethodHead {
		return nil
	}
	out := answer.NewStream(c.w)
	if follow {
		out.Begin()
	}
	err = c.Runs.Output(c.r.Context(), state.ID, follow, out) // which ends with the test runner, for runs do
	if out.Close(); err != nil {
		panic(http.ErrAbortHandler) // the answer is not whole, and says so
	}
	return nil
}

func (c *apiCall) session() error {
	return answer.JSON(c.w, http.StatusOK, c.Session(c.Guard.Required()))
}

func (c *apiCall) login() error {
	var request struct {
		Token string `json:"token"`
	}
	if err := c.read(&request); err != nil {
		return err
	}
	grant, err := c.Guard.Login(c.w, c.r, request.Token)
	if err != nil {
		return err
	}
	return answer.JSON(c.w, http.StatusOK, grant.Session(c.Guard.Required()))
}

func (c *apiCall) logout() error {
	c.Guard.Logout(c.w, c.r)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
