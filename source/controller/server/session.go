package server

import (
	"net/http"

	"github.com/headgate-io/headgate/source/controller/access"
	"github.com/headgate-io/headgate/source/controller/api"
)

// session says who the caller is.
func (c *apiCall) session() error {
	if _, err := c.query(); err != nil {
		return err
	}
	return c.tell(c.grant)
}

func (c *apiCall) tell(g access.Grant) error {
	return c.reply(http.StatusOK, api.Session{Actor: g.Actor, Required: c.Guard.Required(), May: g.May()})
}

// login begins a session of the web page.
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
	return c.tell(grant)
}

func (c *apiCall) logout() error {
	c.Guard.Logout(c.w, c.r)
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
