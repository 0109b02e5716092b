// Translation of a ds_config to Strata's keys: applies the row of keys.yaml to each value, and rules for values that
// depend on several keys. One source per subject.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "resolve/dialect.hpp"
#include "tools/deepspeed/deepspeed_file.hpp"

namespace strata::deepspeed {

using Count = std::optional<std::int64_t>;

config::Node scalar_node(std::string text);  // Returns the name before the first dot of a path.

std::string first_part(const std::string& path);

class DeepSpeedTranslation {
 public:
  DeepSpeedTranslation(std::vector<config::Node>& trees, const config::PluginSource& plugins,
                       const resolve::DialectAnswers& answers);  // Takes the settings deepspeed_compat and
                                                                 // deepspeed_allow as `compat` and `allowed`.
  void read(const config::Node* compat, const config::Node* allowed);

  config::Node tree;
  resolve::Translation report;

 private:
  // Returns the value given by --set, or null.
  const config::Node* set(const std::string& path) const;  // True if the engine, or the plugin named by the target, has
                                                           // such a key. Unknown plugins are refused by resolve.

  bool exists(const std::string& target) const;
  // Replaces {partitioner} and similar placeholders by the chosen plugins.
  std::string expand(std::string text) const;
  // Returns the value in canonical spelling. Throws UserError for a wrong type.
  std::string typed(const DeepSpeedKey& key) const;
  Count count(const std::string& path) const;
  // Puts a value of Strata's key; returns the text for a line: "a.b = c", with the change by --set.
  std::string put(const std::string& path, config::Node value, const Place& place, const std::string& origin);
  std::string put_from(const DeepSpeedKey& key, const std::string& path, const config::Node& value);
  std::string also(const DeepSpeedKey& key);
  void line(const DeepSpeedKey& key, const std::string& text, const std::string& derived = "");
  // Throws the refusal; returns if --allow permits the key.
  void refuse(const DeepSpeedKey& key, const std::string& reason);
  void visit(const DeepSpeedKey& key);
  void block(const DeepSpeedKey& key);
  void take(const DeepSpeedKey& key, const std::string& canonical);
  // Handles a key whose option the chosen plugin lacks.
  void without_target(const DeepSpeedKey& key);
  void automatic(const DeepSpeedKey& key);
  void hidden_size_rule(const DeepSpeedKey& key, const std::string& target, const config::Node& rule);

  // deepspeed_choices.cpp: choice of the plugins.
  void choose_version(const config::Node* compat);  // Sets the plugin of a section; --set has precedence.

  void choose(const std::string& slot, const std::string& plugin, const Place& place, const std::string& origin);
  void say_chosen(const DeepSpeedKey& key);
  void choose_precision();
  void choose_partitioner();
  // Chooses the plugin from a block's `type`, or from --set without a block. Its parameters are read later, because a
  // refused type may have others.
  void choose_type(
      const std::string& block,
      const config::Node& types);  // If the schedule cycles the momentum: sets both of Adam's betas as DeepSpeed does,
                                   // the second to 0.99, and leaves optimizers without betas unchanged.

  void choose_momentum();

  // deepspeed_defaults.cpp: values that a ds_config leaves out.
  struct Default {
    std::string value;
    std::string owner;   // owner of the default
    std::string reason;  // reason for the default
  };
  // Returns the default of a row with a `default_rule`; empty if the row's own default applies.
  std::optional<Default> default_by_rule(const std::string& rule) const;
  // Sets DeepSpeed's default if it differs from Strata's.
  void emit_default(const std::string& path, const config::Node& row);
  void fill();

  // deepspeed_idle.cpp: removes keys without effect.
  std::string value_of(const std::string& target) const;
  void leave_out(const std::string& target, const std::string& reason);
  void leave_out_idle();

  // deepspeed_rules.cpp: pipeline and batch, and the keys for which the table names a rule.
  bool rule(const DeepSpeedKey& key, const std::string& name);
  // Returns optimizer.type in lower case, as DeepSpeed compares it.
  std::string optimizer_type() const;
  // Builds one folder from three keys.
  void csv_monitor(const DeepSpeedKey& key);
  std::int64_t stages() const;
  bool is_pipelined() const;
  void pipeline(const DeepSpeedKey& key);
  // train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps: passes on the known values;
  // resolve derives or checks the rest (batch.hpp). A batch that is only "auto" is Hugging Face's default.
  void batch();
  // Returns the number of micro-batches of a step, which differs from DeepSpeed's if the micro-batch `samples` does.
  Count micro_batches(Count samples, Count micro, Count total) const;
  // `automatic`: the key whose "auto" stands for a whole batch; its line reports the value.
  void hand_on(const std::string& path, const std::string& target, Count value, const std::string& automatic);

  const std::string device_;  // device of the run
  const config::PluginSource& plugins_;
  const resolve::DialectAnswers& answers_;
  DeepSpeedFile file_;
  const config::Node settings_;
  std::vector<std::string> allowed_;
  std::vector<DeepSpeedKey> keys_;
  std::set<std::string> dropped_;              // "auto" values that DeepSpeed treats as left out
  std::map<std::string, std::string> chosen_;  // chosen plugin of each section, and the `version` of DeepSpeed
  std::string stage_;
};

}  // namespace strata::deepspeed
