package org.flinkskills.bridge;

import java.io.Serializable;

/**
 * What the workers open: the plan, and apart from it what only they may know.
 *
 * @param json a JSON object that only the worker understands
 * @param secrets the same; never to be logged or shown
 * @param events whether somebody reads what happens in turns, so that workers tell it
 */
record AgentPlan(String json, String secrets, boolean events) implements Serializable {

  AgentPlan(String json, String secrets) {
    this(json, secrets, false);
  }

  /** The same plan, with events. */
  AgentPlan withEvents() {
    return new AgentPlan(json, secrets, true);
  }

  /** Without the secrets: this text may end in a log or an error message. */
  @Override
  public String toString() {
    return "AgentPlan[" + json + "]";
  }
}
