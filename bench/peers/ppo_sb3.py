#!/usr/bin/env python3
"""PPO of Stable-Baselines3 on CartPole-v1 with CleanRL's settings, for bench/rl.py.

    ppo_sb3.py [--seed S] [--steps N] [--target R]

Trains until the mean return of the last 100 episodes reaches the target, at most N steps. Then it prints the steps, the seconds on the
clock and of the processor since the start of training, and the mean return of 100 evaluation episodes with drawn actions.
"""
import argparse
import time

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--steps", type=int, default=500000)
parser.add_argument("--target", type=float, default=475)
args = parser.parse_args()
torch.set_num_threads(1)  # the fastest for networks of this size


class Target(BaseCallback):
    """Stops after the rollout in which the mean return of the last 100 episodes has reached the target."""

    def _on_step(self):
        returns = [episode["r"] for episode in self.model.ep_info_buffer]
        return not (len(returns) == 100 and sum(returns) / 100 >= args.target)


envs = make_vec_env("CartPole-v1", n_envs=4, seed=args.seed)
model = PPO("MlpPolicy", envs, n_steps=128, batch_size=128, n_epochs=4, learning_rate=lambda left: 2.5e-4 * left, clip_range=0.2,
            clip_range_vf=0.2, ent_coef=0.01, vf_coef=0.5, gamma=0.99, gae_lambda=0.95, max_grad_norm=0.5, seed=args.seed, device="cpu",
            policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, "activation_fn": torch.nn.Tanh,
                           "optimizer_kwargs": {"eps": 1e-5}})
wall, cpu = time.perf_counter(), time.process_time()
model.learn(args.steps, callback=Target())
wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
reached = len(model.ep_info_buffer) == 100 and sum(e["r"] for e in model.ep_info_buffer) / 100 >= args.target
mean, _ = evaluate_policy(model, make_vec_env("CartPole-v1", n_envs=1, seed=args.seed + 1000), n_eval_episodes=100, deterministic=False)
print(f"steps={model.num_timesteps} wall={wall:.2f} cpu={cpu:.2f} reached={int(reached)} evaluation={mean:.1f}")
